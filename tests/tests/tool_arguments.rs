//! Acceptance: the schemas of tools, as golden files, and how arguments are read and repaired.
//!
//! `INSTA_UPDATE=always cargo test -p tests --test tool_arguments` rewrites the golden files.

use std::collections::BTreeMap;

use flow_core::error::ToolError;
use flow_core::tool::arguments::{read, repair};
use proptest::prelude::*;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Books rooms for a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Booking {
    /// Who books, as written on the passport.
    guest: Guest,
    /// The rooms, in the order in which they were chosen.
    rooms: Vec<Room>,
    /// How it is paid; asked at the desk when absent.
    payment: Option<Payment>,
    /// Asks for a late arrival.
    #[serde(default)]
    late: bool,
    #[serde(default = "one")]
    nights: u8,
    /// What the guest wants besides.
    #[serde(default)]
    wishes: Vec<String>,
    /// The most that a night may cost, in EUR.
    limit: Option<f64>,
}

fn one() -> u8 {
    1
}

/// A person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Guest {
    full_name: String,
    /// The loyalty number.
    #[serde(rename = "no")]
    number: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Room {
    /// Which room.
    id: String,
    guests: u8,
    floor: Option<i32>,
}

/// How a guest pays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Payment {
    Card,
    Cash,
    /// By invoice to a company.
    Invoice {
        company: String,
        days: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Contact {
    Mail { address: String },
    Phone { country: u16, number: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Price,
    Rating,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Page {
    /// First result, from 0.
    #[serde(default)]
    offset: u32,
    #[serde(default)]
    order: Option<Order>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Search {
    city: String,
    #[serde(flatten)]
    page: Page,
    contact: Option<Contact>,
    #[serde(default)]
    extras: BTreeMap<String, u32>,
    #[serde(default)]
    area: Option<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Strict {
    #[serde(default)]
    count: Option<i64>,
}

/// A menu with menus in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Menu {
    title: String,
    #[serde(default)]
    items: Vec<Menu>,
    parent: Option<Box<Menu>>,
}

fn schema<T: JsonSchema>() -> Value {
    schema_for!(T).to_value()
}

/// Reads `T` as a tool does.
fn call<T: JsonSchema + DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    read("book", &schema::<T>(), arguments)
}

fn misfit<T: JsonSchema + DeserializeOwned>(arguments: Value) -> (String, String) {
    match call::<T>(arguments) {
        Err(ToolError::Arguments { tool, path, reason }) => {
            assert_eq!(tool, "book");
            (path, reason)
        }
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("arguments that do not fit were read"),
    }
}

#[test]
fn schemas_are_those_of_the_golden_files() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_sort_maps(true);
    settings.bind(|| {
        insta::assert_json_snapshot!("nested_option_vec_enum_default", schema::<Booking>());
        insta::assert_json_snapshot!("flatten_tagged_map_tuple", schema::<Search>());
        insta::assert_json_snapshot!("deny_unknown_fields", schema::<Strict>());
        insta::assert_json_snapshot!("recursive", schema::<Menu>());
    });
}

/// Arguments of `Booking` with one field set.
fn booking(field: &str, value: Value) -> Value {
    let mut whole = json!({
        "guest": { "fullName": "Ada Lovelace" },
        "rooms": [{ "id": "12", "guests": 2 }],
    });
    whole[field] = value;
    whole
}

#[test]
fn repair_table() {
    let room = json!({ "id": "7", "guests": 1 });
    // Field, what the model sent, what is read.
    let table = [
        ("nights", json!("5"), json!(5)),
        ("nights", json!(" 5 "), json!(5)),
        ("nights", json!(30.0), json!(30)),
        ("nights", json!("30.0"), json!(30)),
        ("nights", json!(null), json!(1)),
        ("nights", json!(""), json!(1)),
        ("limit", json!("1.5"), json!(1.5)),
        ("limit", json!("100"), json!(100.0)),
        ("limit", json!("null"), json!(null)),
        ("limit", json!(""), json!(null)),
        ("late", json!("true"), json!(true)),
        ("late", json!("False"), json!(false)),
        ("late", json!(null), json!(false)),
        ("payment", json!("CARD"), json!("card")),
        ("payment", json!(""), json!(null)),
        ("payment", json!("null"), json!(null)),
        (
            "payment",
            json!({ "invoice": { "company": "ACME", "days": "30" } }),
            json!({ "invoice": { "company": "ACME", "days": 30 } }),
        ),
        (
            "payment",
            json!(r#"{"invoice": {"company": "ACME", "days": 30}}"#),
            json!({ "invoice": { "company": "ACME", "days": 30 } }),
        ),
        ("guest", json!(r#"{"fullName": "Ada"}"#), json!({ "fullName": "Ada", "no": null })),
        (
            "guest",
            json!(r#"{"fullName": "Ada"} That is all."#),
            json!({ "fullName": "Ada", "no": null }),
        ),
        (
            "guest",
            json!("```json\n{\"fullName\": \"Ada\"}\n```"),
            json!({ "fullName": "Ada", "no": null }),
        ),
        ("guest", json!({ "fullName": "Ada", "no": 5 }), json!({ "fullName": "Ada", "no": "5" })),
        ("guest", json!({ "fullName": "Ada", "no": "5" }), json!({ "fullName": "Ada", "no": "5" })),
        ("rooms", room.clone(), json!([{ "id": "7", "guests": 1, "floor": null }])),
        (
            "rooms",
            json!(r#"[{"id": 7, "guests": "1", "floor": "-1"}]"#),
            json!([{ "id": "7", "guests": 1, "floor": -1 }]),
        ),
        (
            "rooms",
            json!([r#"{"id": "7", "guests": 1}"#, room]),
            json!([
                { "id": "7", "guests": 1, "floor": null },
                { "id": "7", "guests": 1, "floor": null },
            ]),
        ),
        ("wishes", json!("a quiet room"), json!(["a quiet room"])),
        ("wishes", json!(r#"["a", "b"]"#), json!(["a", "b"])),
        ("wishes", json!(null), json!([])),
        ("wishes", json!(""), json!([])),
    ];
    for (field, sent, expected) in table {
        let read = call::<Booking>(booking(field, sent.clone()))
            .unwrap_or_else(|e| panic!("{field} = {sent}: {e}"));
        assert_eq!(serde_json::to_value(read).unwrap()[field], expected, "{field} = {sent}");
    }
}

#[test]
fn whole_arguments_that_are_absent_or_text() {
    let nothing = Strict { count: None };
    for sent in [json!(null), json!(""), json!("  "), json!("null"), json!("{}"), json!({})] {
        assert_eq!(call::<Strict>(sent.clone()).unwrap(), nothing, "{sent}");
    }
    let once = json!({ "count": "3" }).to_string();
    let twice = json!(once).to_string();
    let noisy = format!("{once}\n\nI hope this helps!");
    for sent in [once, twice, noisy] {
        assert_eq!(call::<Strict>(json!(sent)).unwrap(), Strict { count: Some(3) }, "{sent}");
    }
    let (path, reason) = misfit::<Booking>(json!(null));
    assert_eq!((path.as_str(), reason.as_str()), (".", "missing field `guest`"));
}

#[test]
fn what_has_no_single_reading_is_an_error_that_names_the_path() {
    // Field, what the model sent, where the error is, what its reason holds.
    let table = [
        ("nights", json!(5.5), "nights", "floating point `5.5`, expected u8"),
        ("nights", json!("5.5"), "nights", "string \"5.5\", expected u8"),
        ("nights", json!(300), "nights", "integer `300`, expected u8"),
        ("nights", json!("300"), "nights", "expected u8"),
        ("nights", json!(-1.0), "nights", "expected u8"),
        ("nights", json!("five"), "nights", "string \"five\", expected u8"),
        ("nights", json!("5 nights"), "nights", "expected u8"),
        ("nights", json!(true), "nights", "boolean `true`, expected u8"),
        ("late", json!(1), "late", "integer `1`, expected a boolean"),
        ("late", json!("yes"), "late", "expected a boolean"),
        ("wishes", json!("tea, milk"), "wishes", "expected a sequence"),
        ("guest", json!({ "fullName": 1.5 }), "guest.fullName", "expected a string"),
        ("guest", json!({ "fullName": true }), "guest.fullName", "expected a string"),
        ("guest", json!({}), "guest", "missing field `fullName`"),
        ("guest", json!({ "fullName": null }), "guest.fullName", "expected a string"),
        (
            "guest",
            json!(r#"{"fullName": "Ada"} or {"fullName": "Eve"}"#),
            "guest",
            "it holds two values",
        ),
        ("guest", json!(r#"{"fullName": "#), "guest", "EOF while parsing"),
        (
            "rooms",
            json!([{ "id": "1", "guests": 1 }, { "id": "2", "guests": "many" }]),
            "rooms[1].guests",
            "string \"many\", expected u8",
        ),
        ("payment", json!("check"), "payment", "unknown variant `check`"),
        (
            "payment",
            json!({ "invoice": { "company": "ACME", "days": "soon" } }),
            "payment.invoice.days",
            "string \"soon\", expected u16",
        ),
    ];
    for (field, sent, path, reason) in table {
        let found = misfit::<Booking>(booking(field, sent.clone()));
        assert_eq!(found.0, path, "{field} = {sent}: {}", found.1);
        assert!(found.1.contains(reason), "{field} = {sent}: {}", found.1);
    }
}

#[test]
fn paths_reach_into_flattened_and_tagged_types() {
    let page = misfit::<Search>(json!({ "city": "Ulm", "offset": "first" }));
    assert_eq!(page.0, "offset", "{}", page.1);

    let contact = json!({ "kind": "phone", "country": "DE", "number": "1" });
    let contact = misfit::<Search>(json!({ "city": "Ulm", "contact": contact }));
    assert_eq!(contact.0, "contact.country", "{}", contact.1);

    let area = misfit::<Search>(json!({ "city": "Ulm", "area": [1.0, "far"] }));
    assert_eq!(area.0, "area[1]", "{}", area.1);

    let extras = misfit::<Search>(json!({ "city": "Ulm", "extras": { "cot": "one" } }));
    assert_eq!(extras.0, "extras.cot", "{}", extras.1);
}

#[test]
fn flattened_tagged_and_mapped_values_are_repaired() {
    let sent = json!({
        "city": "Ulm",
        "offset": "20",
        "order": "Rating",
        "contact": { "kind": "Phone", "country": "49", "number": 30 },
        "extras": { "cot": "1" },
        "area": ["48.4", 10],
    });
    let read = call::<Search>(sent).unwrap();
    assert_eq!(read.page, Page { offset: 20, order: Some(Order::Rating) });
    assert_eq!(read.contact, Some(Contact::Phone { country: 49, number: "30".to_owned() }));
    assert_eq!(read.extras["cot"], 1);
    assert_eq!(read.area, Some((48.4, 10.0)));
}

#[test]
fn extra_fields_are_for_the_type_to_judge() {
    let extra = booking("mood", json!({ "5": "5" }));
    let mut repaired = extra.clone();
    repair(&schema::<Booking>(), &mut repaired);
    assert_eq!(repaired, extra);
    assert_eq!(call::<Booking>(extra).unwrap().nights, 1);

    let (_, reason) = misfit::<Strict>(json!({ "count": "1", "mood": "5" }));
    assert!(reason.contains("unknown field `mood`, expected `count`"), "{reason}");
}

#[test]
fn integers_at_the_edges_stay_exact() {
    for (sent, read) in [
        (json!("9223372036854775807"), Some(i64::MAX)),
        (json!("-9223372036854775808"), Some(i64::MIN)),
        (json!("9007199254740993"), Some(9_007_199_254_740_993)),
        (json!("-0"), Some(0)),
        (json!(9_007_199_254_740_992.0), Some(9_007_199_254_740_992)),
        (json!("1e3"), Some(1000)),
        (json!("9223372036854775808"), None),
        (json!(1e300), None),
        (json!("+5"), None),
        (json!("NaN"), None),
    ] {
        let found = call::<Strict>(json!({ "count": sent }));
        assert_eq!(found.ok().map(|strict| strict.count), read.map(Some), "{sent}");
    }
}

#[test]
fn errors_do_not_repeat_huge_values() {
    let huge = "x".repeat(1_000_000);
    for sent in [
        json!({ "count": huge }),
        json!({ huge.clone(): 1 }),
        json!(huge),
        json!(format!("{{\"count\": \"{huge}\"}}")),
    ] {
        let error = call::<Strict>(sent).unwrap_err().to_string();
        assert!(error.len() < 1_000, "{} bytes", error.len());
    }
    let (path, reason) = misfit::<Strict>(json!({ "count": huge }));
    assert_eq!(path, "count");
    assert!(reason.ends_with("expected i64"), "{reason}");
}

#[test]
fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
    let brackets = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let (path, reason) = misfit::<Menu>(json!(brackets));
    assert_eq!(path, ".");
    assert!(reason.contains("recursion limit exceeded"), "{reason}");

    let objects = format!("{}1{}", r#"{"parent":"#.repeat(10_000), "}".repeat(10_000));
    let (path, reason) = misfit::<Menu>(json!({ "title": "", "parent": objects }));
    assert_eq!(path, "parent");
    assert!(reason.contains("recursion limit exceeded"), "{reason}");

    // The deepest that is repaired, within what a thread of tokio or of a test has of stack.
    let mut sent = json!({ "title": 1 });
    for _ in 0..60 {
        sent = json!({ "title": 1, "parent": sent });
    }
    assert!(call::<Menu>(sent).unwrap().parent.is_some());

    // 100 levels parse, but are more than a session document takes.
    let objects = format!("{}1{}", r#"{"parent":"#.repeat(100), "}".repeat(100));
    let (path, reason) = misfit::<Menu>(json!(objects));
    assert_eq!((path.as_str(), reason.as_str()), (".", "nested deeper than 64 levels"));

    let mut value = json!(1);
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let (path, reason) = misfit::<Menu>(value);
    assert_eq!((path.as_str(), reason.as_str()), (".", "nested deeper than 64 levels"));
}

#[test]
fn recursive_types_are_repaired_at_every_level() {
    let mut sent = json!({ "title": 1 });
    for _ in 0..20 {
        sent = json!({ "title": "m", "items": [sent], "parent": "" });
    }
    let mut menu = &call::<Menu>(sent).unwrap();
    for _ in 0..20 {
        menu = &menu.items[0];
    }
    assert_eq!(menu.title, "1");
}

/// Any JSON, with the keys and texts that the types above know more often than chance.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "guest", "rooms", "payment", "late", "nights", "wishes", "limit", "fullName", "no", "id",
        "guests", "floor", "card", "CARD", "invoice", "company", "days", "city", "offset", "order",
        "price", "contact", "kind", "mail", "Phone", "country", "number", "address", "extras",
        "area", "count", "title", "items", "parent",
    ]);
    let text = prop_oneof![
        word.clone().prop_map(str::to_owned),
        prop::sample::select(vec!["", " ", "null", "5", " 5 ", "30.0", "1.5", "true", "False"])
            .prop_map(str::to_owned),
        prop::sample::select(vec!["{}", "[]", "[1]", r#"{"id": 1}"#, r#""{}""#, "[", "{} x"])
            .prop_map(str::to_owned),
        ".{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i32..300).prop_map(|n| json!(f64::from(n) / 2.0)),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner.clone(), 0..6)
                .prop_map(|map| json!(map)),
            1 => inner.prop_map(|value| Value::from(value.to_string())),
        ]
    })
}

/// JSON that is close to a `Booking`: each field is right, wrong or absent.
fn near_booking() -> impl Strategy<Value = Value> {
    let field = |right: Value| {
        prop_oneof![
            4 => Just(Some(right.clone())),
            2 => Just(Some(Value::from(right.to_string()))),
            1 => Just(None),
            2 => any_json().prop_map(Some),
        ]
    };
    let fields = (
        field(json!({ "fullName": "Ada", "no": 5 })),
        field(json!([{ "id": "12", "guests": 2.0 }])),
        field(json!("Cash")),
        field(json!(true)),
        field(json!(3)),
        field(json!(["tea"])),
        field(json!(99.5)),
    );
    fields.prop_map(|(guest, rooms, payment, late, nights, wishes, limit)| {
        let names = ["guest", "rooms", "payment", "late", "nights", "wishes", "limit"];
        let values = [guest, rooms, payment, late, nights, wishes, limit];
        let known = names.into_iter().zip(values);
        known.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    })
}

fn check_repair<T: JsonSchema + DeserializeOwned>(value: &Value) {
    let schema = schema::<T>();
    let mut once = value.clone();
    repair(&schema, &mut once);
    let mut twice = once.clone();
    repair(&schema, &mut twice);
    assert_eq!(once, twice, "repaired twice");
    if serde_json::from_value::<T>(value.clone()).is_ok() {
        assert_eq!(&once, value, "read as it was");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn repair_is_idempotent_and_leaves_what_reads(value in prop_oneof![any_json(), near_booking()]) {
        check_repair::<Booking>(&value);
        check_repair::<Search>(&value);
        check_repair::<Strict>(&value);
        check_repair::<Menu>(&value);
        check_repair::<Payment>(&value);
        check_repair::<Contact>(&value);
    }
}
