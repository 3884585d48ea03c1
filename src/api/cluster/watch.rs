//! What the API server says besides objects: lines of a watch, and its `Status`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{from_slice, object};
use crate::meta::{ListMeta, ObjectMeta};
use crate::status::PodStatus;

object! {
    /// Status of meta/v1: why a request was not done.
    pub struct ApiStatus {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ListMeta,
        "status" status: Box<str>,
        "message" message: Box<str>,
        /// NotFound, Conflict, AlreadyExists, Expired, TooManyRequests, ...
        "reason" reason: Box<str>,
        "code" code: i32,
    }

    /// A pod, when what it asks for is known.
    pub struct OnlyStatus {
        "metadata" metadata: ObjectMeta,
        "status" status: PodStatus,
    }

    /// Any object, when only its name is wanted.
    pub struct OnlyMeta {
        "metadata" metadata: ObjectMeta,
    }
}

/// Some objects of one kind, each as its own JSON, so that one that cannot be read does not hide the
/// others.
#[derive(Deserialize)]
pub struct List {
    #[serde(default)]
    pub metadata: ListMeta,
    items: Option<Vec<Box<RawValue>>>,
}

impl List {
    pub fn items(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().flatten().map(|item| item.get().as_bytes())
    }
}

/// What a line of a watch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// The object is there now, or is another one than before.
    Set,
    Deleted,
    Bookmark,
    /// The object is an `ApiStatus`; the watch is over.
    Error,
}

/// A line whose object is of a kind that is known.
pub struct WatchLine<T> {
    pub kind: WatchKind,
    pub object: T,
}

/// The kind of a line, without a look at its object. Errors: what is wrong with the line.
pub fn kind_of_line(line: &[u8]) -> Result<WatchKind, String> {
    from_slice::<WatchLine<Skipped>>(line).map(|line| line.kind)
}

#[derive(Default)]
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Skipped, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Skipped)
    }
}

fn kind_of(word: &str) -> Result<WatchKind, String> {
    match word {
        "ADDED" | "MODIFIED" => Ok(WatchKind::Set),
        "DELETED" => Ok(WatchKind::Deleted),
        "BOOKMARK" => Ok(WatchKind::Bookmark),
        "ERROR" => Ok(WatchKind::Error),
        other => Err(alloc::format!("a watch says {other:?}")),
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for WatchLine<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<WatchLine<T>, D::Error> {
        let (kind, object) = fields::<D, T>(from)?;
        let kind = kind_of(&kind).map_err(serde::de::Error::custom)?;
        Ok(WatchLine { kind, object: object.unwrap_or_default() })
    }
}

/// Reads `{"type": ..., "object": ...}`.
fn fields<'de, D, T>(from: D) -> Result<(Box<str>, Option<T>), D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Line<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Line<T> {
        type Value = (Box<str>, Option<T>);

        fn expecting(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            out.write_str("a line of a watch")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut kind, mut object) = (Box::default(), None);
            while let Some(key) = map.next_key::<String>()? {
                match key.as_str() {
                    "type" => kind = map.next_value()?,
                    "object" => object = Some(map.next_value()?),
                    _ => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok((kind, object))
        }
    }

    from.deserialize_map(Line(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Pod;

    #[test]
    fn lines_of_every_kind() {
        let check = |line: &str, want| assert_eq!(kind_of_line(line.as_bytes()), want, "{line}");
        check(r#"{"type":"ADDED","object":{"kind":"Pod"}}"#, Ok(WatchKind::Set));
        check(r#"{"object":{"kind":"Pod"},"type":"MODIFIED"}"#, Ok(WatchKind::Set));
        check(r#"{"type":"DELETED","object":{},"more":1}"#, Ok(WatchKind::Deleted));
        check(r#"{"type":"BOOKMARK"}"#, Ok(WatchKind::Bookmark));
        check(r#"{"type":"ERROR","object":{"code":410}}"#, Ok(WatchKind::Error));
        check(r#"{"type":"NEW"}"#, Err("a watch says \"NEW\"".into()));
        assert!(kind_of_line(b"{\"type\":\"ADD").is_err() && kind_of_line(b"").is_err());
        let pod = r#"{"type":"ADDED","object":{"metadata":{"name":"web"}}}"#;
        let pod = from_slice::<WatchLine<Pod>>(pod.as_bytes()).expect("a pod").object;
        assert_eq!(&*pod.metadata.name, "web");
    }
}
