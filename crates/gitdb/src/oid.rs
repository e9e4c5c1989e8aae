//! Object ids, in either of git's two formats.

use std::{fmt, str::FromStr};

/// A full object id: 40 (SHA-1) or 64 (SHA-256) lower-case hex digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(String);

/// The text is not a full object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an object id")]
pub struct NotAnOid;

impl Oid {
    /// The id as hex.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first seven digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..7]
    }
}

impl FromStr for Oid {
    type Err = NotAnOid;

    fn from_str(text: &str) -> Result<Self, NotAnOid> {
        let right_length = matches!(text.len(), 40 | 64);
        let hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if right_length && hex {
            Ok(Oid(text.to_owned()))
        } else {
            Err(NotAnOid)
        }
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({})", self.0)
    }
}

impl serde::Serialize for Oid {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Oid {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
