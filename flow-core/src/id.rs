//! Typed ids and the rules for names that are persisted.
//!
//! A session id comes from outside, so it is checked before anything is read or written.
//! Flow ids, step names, tool names and memory namespaces come from the program and become
//! keys of documents; they are checked when the engine is built.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::IdError;

/// The most bytes that an id or a name may have.
pub const MAX_ID_BYTES: usize = 128;

/// The id of one conversation: 1 to 128 bytes of ASCII letters, digits and `- _ : @ + / =`.
///
/// Dots, dollars, spaces and control characters are refused, since they are operators or
/// separators in one store or another. The id is cheap to clone.
///
/// ```
/// use flow_core::id::SessionId;
///
/// let id = SessionId::new("whatsapp:+491701234567")?;
/// assert_eq!(id.as_str(), "whatsapp:+491701234567");
/// assert!(SessionId::new("a.b").is_err());
/// # Ok::<(), flow_core::error::IdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Takes a text as a session id.
    ///
    /// # Errors
    /// When the text is empty, too long or has a character that is not allowed.
    pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
        let text = text.as_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_:@+/=".contains(c);
        check(
            "session id",
            text,
            allowed,
            "only ASCII letters, digits and - _ : @ + / = are allowed",
        )?;
        Ok(Self(text.into()))
    }

    /// A new random id: a version 7 UUID (RFC 9562), so ids sort by the time they were made.
    pub fn random() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// The id under which the `n`th superseded document of this session is kept.
    ///
    /// It holds a `~`, which no id from outside can.
    pub(crate) fn superseded(&self, n: u32) -> Self {
        Self(format!("{}~{n}", self.0).into())
    }

    /// The id of the session that an effect of this one begins, by the number of the visit
    /// and the place of the effect.
    pub(crate) fn child(&self, visit: u64, place: &str) -> Self {
        Self(format!("{}~c{visit}-{place}", self.0).into())
    }

    /// The id under which the archive of this session is kept: the id itself, or for a
    /// superseded document that of the session that it once was.
    #[must_use]
    pub fn archive_key(&self) -> Self {
        match self.0.rsplit_once('~') {
            Some((id, n)) if n.parse::<u32>().is_ok() => Self(id.into()),
            _ => self.clone(),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = IdError;

    /// Takes an id that the program itself has stored, so those of superseded documents and
    /// of child sessions pass too.
    fn try_from(text: String) -> Result<Self, IdError> {
        let mut parts = text.split('~');
        let root = parts.next().unwrap_or_default();
        let made = |part: &str| {
            let part = part.strip_prefix('c').unwrap_or(part);
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b"-_".contains(&b))
        };
        if parts.all(made) {
            Self::new(root)?;
            Ok(Self(text.into()))
        } else {
            Self::new(text)
        }
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:?})", &*self.0)
    }
}

/// Checks a name that becomes a key of documents: a letter or `_` first, then letters,
/// digits, `_` and `-`, at most 128 bytes. Letters are those of Unicode, as in Rust.
///
/// # Errors
/// When the name breaks the rule; `kind` says in the error what it was meant to be.
pub fn check_name(kind: &'static str, text: &str) -> Result<(), IdError> {
    let allowed = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    check(kind, text, allowed, "only letters, digits, _ and - are allowed")?;
    match text.chars().next() {
        Some(first) if first.is_alphabetic() || first == '_' => Ok(()),
        _ => Err(refuse(kind, text, "it must begin with a letter or _")),
    }
}

fn check(
    kind: &'static str,
    text: &str,
    allowed: impl Fn(char) -> bool,
    reason: &'static str,
) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(refuse(kind, text, "it is empty"));
    }
    if text.len() > MAX_ID_BYTES {
        return Err(refuse(kind, text, "it has more than 128 bytes"));
    }
    if text.chars().all(allowed) { Ok(()) } else { Err(refuse(kind, text, reason)) }
}

fn refuse(kind: &'static str, text: &str, reason: &'static str) -> IdError {
    let shown: String = text.chars().take(64).collect();
    IdError { kind, shown: format!("{shown:?}"), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_operators_separators_and_control_characters() {
        for bad in ["", "$where", "a.b", "a\0b", "a b", "ü", "a\n", "a~1", &"x".repeat(129)] {
            let error = SessionId::new(bad).unwrap_err();
            assert!(!error.to_string().contains('\0'), "{error}");
            assert!(error.shown.len() < 200);
        }
        assert!(SessionId::new("x".repeat(128)).is_ok());
    }

    #[test]
    fn superseded_ids_come_back_from_the_store_and_not_from_outside() {
        let id = SessionId::new("a").unwrap().superseded(3);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), id);
        assert!(SessionId::new(id.as_str()).is_err());
    }

    #[test]
    fn ids_of_children_name_their_family_and_have_an_archive_of_their_own() {
        let child = SessionId::new("a").unwrap().child(7, "3");
        assert_eq!(child.as_str(), "a~c7-3");
        let grandchild = child.child(1, "0_2");
        for id in [&child, &grandchild, &grandchild.superseded(2)] {
            let json = serde_json::to_string(id).unwrap();
            assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), *id);
            assert!(SessionId::new(id.as_str()).is_err());
        }
        assert_eq!(child.archive_key(), child);
        assert_eq!(grandchild.superseded(2).archive_key(), grandchild);
        for bad in ["a~", "a~c", "a~x1", "a~c1~", "a b~c1", "~c1"] {
            assert!(SessionId::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_keys_of_documents() {
        assert!(check_name("step name", "Größe_1").is_ok());
        for bad in ["", "1a", "a.b", "$a", "a b", "-a"] {
            assert!(check_name("step name", bad).is_err(), "{bad}");
        }
    }
}
