use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::json::canonical;

/// The shape of the JSON that a schema describes: the schema without what may change while
/// documents stay the same.
///
/// Titles, descriptions, defaults, examples, the names of types, the order of fields,
/// variants and constants are left out; references are replaced by what they refer to.
pub(crate) fn shape(schema: &Schema) -> Value {
    Shaper { root: schema.as_value(), open: vec!["#"] }.schema(schema.as_value())
}

struct Shaper<'a> {
    root: &'a Value,
    /// The references that are being replaced, outermost first.
    open: Vec<&'a str>,
}

impl<'a> Shaper<'a> {
    fn schema(&mut self, schema: &'a Value) -> Value {
        let Value::Object(keywords) = schema else { return schema.clone() };
        let mut shape = Map::new();
        for (keyword, value) in keywords {
            let value = match keyword.as_str() {
                "$schema" | "$id" | "$comment" | "$defs" | "$ref" | "title" | "description"
                | "default" | "examples" | "deprecated" => continue,
                extension if extension.starts_with("x-") => continue,
                "properties" | "patternProperties" | "dependentSchemas" => self.named(value),
                "allOf" | "anyOf" | "oneOf" => sorted(self.each(value)),
                "prefixItems" => self.each(value),
                "items"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties"
                | "not"
                | "if"
                | "then"
                | "else" => self.schema(value),
                "required" | "type" | "enum" => sorted(value.clone()),
                "const" => {
                    shape.insert("enum".into(), json!([value]));
                    continue;
                }
                _ => value.clone(),
            };
            shape.insert(keyword.clone(), value);
        }
        gather_constants(&mut shape);
        match keywords.get("$ref").and_then(Value::as_str) {
            Some(reference) => join(shape, self.referred(reference)),
            None => Value::Object(shape),
        }
    }

    fn named(&mut self, schemas: &'a Value) -> Value {
        let schemas = schemas.as_object().into_iter().flatten();
        schemas.map(|(name, schema)| (name.clone(), self.schema(schema))).collect()
    }

    fn each(&mut self, schemas: &'a Value) -> Value {
        let schemas = schemas.as_array().into_iter().flatten();
        schemas.map(|schema| self.schema(schema)).collect()
    }

    /// What a reference refers to. One that leads back to itself is told by the number of
    /// references between the two, since the name of a type is not part of the shape.
    fn referred(&mut self, reference: &'a str) -> Value {
        if let Some(place) = self.open.iter().position(|open| *open == reference) {
            return json!({ "$recursive": self.open.len() - place });
        }
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| self.root.pointer(&percent_decoded(pointer)));
        let Some(target) = target else { return json!({ "$ref": reference }) };
        self.open.push(reference);
        let shape = self.schema(target);
        self.open.pop();
        shape
    }
}

/// A list in an order that does not depend on that of the source.
fn sorted(mut value: Value) -> Value {
    if let Value::Array(items) = &mut value {
        items.sort_by_cached_key(canonical);
    }
    value
}

/// The schema that demands both what stands beside a reference and what it refers to.
fn join(mut beside: Map<String, Value>, referred: Value) -> Value {
    if beside.is_empty() {
        return referred;
    }
    match referred {
        Value::Object(referred) if referred.keys().all(|key| !beside.contains_key(key)) => {
            beside.extend(referred);
        }
        referred => match beside.entry("allOf").or_insert_with(|| json!([])) {
            Value::Array(all) => all.push(referred),
            other => *other = json!([other.take(), referred]),
        },
    }
    Value::Object(beside)
}

/// Writes alternatives that are constants of one type as one list of constants. A doc
/// comment on a unit variant of an enum decides which of the two `schemars` writes.
fn gather_constants(shape: &mut Map<String, Value>) {
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(members)) = shape.get_mut(keyword) else { continue };
        let mut gathered: Vec<Value> = Vec::with_capacity(members.len());
        for member in members.drain(..) {
            let same_type = |other: &&mut Value| {
                is_constant(other) && is_constant(&member) && other["type"] == member["type"]
            };
            match gathered.iter_mut().find(same_type).map(|other| &mut other["enum"]) {
                Some(Value::Array(constants)) => {
                    constants.extend(member["enum"].as_array().into_iter().flatten().cloned());
                    constants.sort_by_cached_key(canonical);
                }
                _ => gathered.push(member),
            }
        }
        match gathered.as_slice() {
            [Value::Object(only)]
                if is_constant(&gathered[0]) && only.keys().all(|key| !shape.contains_key(key)) =>
            {
                let only = only.clone();
                shape.remove(keyword);
                shape.extend(only);
            }
            _ => {
                shape.insert(keyword.into(), sorted(gathered.into()));
            }
        }
    }
}

fn is_constant(schema: &Value) -> bool {
    schema.as_object().is_some_and(|keywords| {
        keywords.contains_key("enum")
            && keywords.keys().all(|keyword| keyword == "enum" || keyword == "type")
    })
}

/// Undoes the percent-encoding of a URI fragment (RFC 3986, section 2.1).
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
// The types are here for their schemas alone.
#[allow(dead_code)]
mod tests {
    use super::*;
    use schemars::{JsonSchema, schema_for};
    use serde::Deserialize;

    mod plain {
        use super::*;

        #[derive(JsonSchema, Deserialize)]
        pub(super) struct State {
            pub(super) title: String,
            pub(super) room: Room,
            pub(super) spare: Option<Room>,
            pub(super) level: Level,
            pub(super) shown: Vec<Room>,
            pub(super) choice: Choice,
        }

        #[derive(JsonSchema, Deserialize)]
        pub(super) struct Room {
            pub(super) id: u32,
            pub(super) name: Option<String>,
        }

        #[derive(JsonSchema, Deserialize)]
        pub(super) enum Level {
            Low,
            High,
        }

        #[derive(JsonSchema, Deserialize)]
        #[serde(tag = "kind")]
        pub(super) enum Choice {
            Room(Room),
            Later { days: u8 },
        }
    }

    mod dressed {
        use super::*;

        /// Another name, docs, another order.
        #[derive(JsonSchema, Deserialize)]
        #[schemars(title = "The state", extend("x-note" = "n"))]
        pub(super) struct Everything {
            /// What it offers.
            pub(super) choice: Offer,
            #[schemars(example = 1)]
            pub(super) shown: Vec<Größe>,
            /// How high.
            pub(super) level: Height,
            /// Another room.
            pub(super) spare: Option<Größe>,
            /// The room.
            pub(super) room: Größe,
            /// The title.
            pub(super) title: String,
        }

        /// A room whose name is percent-encoded in references.
        #[derive(JsonSchema, Deserialize)]
        pub(super) struct Größe {
            /// Its name.
            pub(super) name: Option<String>,
            /// Its id.
            #[deprecated]
            pub(super) id: u32,
        }

        /// How high.
        #[derive(JsonSchema, Deserialize)]
        pub(super) enum Height {
            /// Up there.
            High,
            /// Down here.
            Low,
        }

        /// An offer.
        #[derive(JsonSchema, Deserialize)]
        #[serde(tag = "kind")]
        pub(super) enum Offer {
            /// Another day.
            Later {
                /// In so many days.
                days: u8,
            },
            /// This one.
            Room(Größe),
        }
    }

    #[test]
    fn docs_names_of_types_and_order_are_no_part_of_the_shape() {
        let plain = shape(&schema_for!(plain::State));
        assert_eq!(plain, shape(&schema_for!(dressed::Everything)));
        assert_ne!(schema_for!(plain::State), schema_for!(dressed::Everything));
        assert!(!plain.to_string().contains("$ref"), "{plain}");
        // A field may be called like an annotation.
        assert_eq!(plain["properties"]["title"], json!({ "type": "string" }));
        assert_eq!(
            plain["properties"]["level"],
            json!({ "type": "string", "enum": ["High", "Low"] })
        );
    }

    #[test]
    fn each_change_of_what_persists_changes_the_shape() {
        #[derive(JsonSchema, Deserialize)]
        struct Base {
            a: u8,
            b: Option<String>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Renamed {
            #[serde(rename = "A")]
            a: u8,
            b: Option<String>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Wider {
            a: u16,
            b: Option<String>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Optional {
            #[serde(default)]
            a: u8,
            b: Option<String>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Required {
            a: u8,
            b: String,
        }
        #[derive(JsonSchema, Deserialize)]
        struct More {
            a: u8,
            b: Option<String>,
            c: Option<u8>,
        }
        let shapes = [
            shape(&schema_for!(Base)),
            shape(&schema_for!(Renamed)),
            shape(&schema_for!(Wider)),
            shape(&schema_for!(Optional)),
            shape(&schema_for!(Required)),
            shape(&schema_for!(More)),
            shape(&schema_for!(())),
            shape(&schema_for!(Value)),
        ];
        for (i, one) in shapes.iter().enumerate() {
            assert!(shapes[..i].iter().all(|other| other != one), "{one}");
        }
    }

    #[test]
    fn the_value_of_a_default_is_no_part_of_the_shape() {
        fn one() -> u8 {
            1
        }
        #[derive(JsonSchema, Deserialize)]
        struct Zero {
            #[serde(default)]
            a: u8,
        }
        #[derive(JsonSchema, Deserialize)]
        struct One {
            #[serde(default = "one")]
            a: u8,
        }
        assert_eq!(shape(&schema_for!(Zero)), shape(&schema_for!(One)));
    }

    #[test]
    fn types_that_hold_themselves_have_a_finite_shape_without_names() {
        #[derive(JsonSchema, Deserialize)]
        struct Tree {
            children: Vec<Tree>,
            leaf: Option<Box<Leaf>>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Leaf {
            tree: Box<Tree>,
            next: Option<Box<Leaf>>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Baum {
            leaf: Option<Box<Blatt>>,
            children: Vec<Baum>,
        }
        #[derive(JsonSchema, Deserialize)]
        struct Blatt {
            next: Option<Box<Blatt>>,
            tree: Box<Baum>,
        }
        let tree = shape(&schema_for!(Tree));
        assert_eq!(tree, shape(&schema_for!(Baum)));
        assert_eq!(tree["properties"]["children"]["items"], json!({ "$recursive": 1 }));
        assert!(!tree.to_string().contains("Leaf"), "{tree}");

        #[derive(JsonSchema, Deserialize)]
        struct Holder {
            tree: Tree,
        }
        assert!(!shape(&schema_for!(Holder)).to_string().contains("Tree"));
    }

    #[test]
    fn percent_encoding_is_undone_and_stray_signs_are_kept() {
        assert_eq!(percent_decoded("/$defs/Gr%C3%B6%C3%9Fe%20x"), "/$defs/Größe x");
        assert_eq!(percent_decoded("%, %2, %zz"), "%, %2, %zz");
    }
}
