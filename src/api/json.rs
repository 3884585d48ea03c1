//! How Kubernetes objects stand in JSON: one macro writes both directions for every object.
//!
//! The rules are those of Go's decoder, since manifests are written for it: a key that no field has
//! is ignored, the last of two equal keys wins, and `null` means the empty value of whatever the
//! field holds. Empty fields are not written, unless the macro lists them under `always`. An error
//! carries the path of the field, in the form `.spec.containers.image: invalid type: integer `5`,
//! expected a string`.
//!
//! Formats that do not describe themselves (snapshots) hold an object as the bytes of its JSON,
//! because fields that come and go cannot be told apart there.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the `object!` macro writes for a type.
pub(crate) trait Object: Default + DeserializeOwned {
    const NAME: &'static str;

    /// Reads the value that follows `key` into its field, or skips it if there is no such field.
    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error>;

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// Declares Kubernetes objects: each line gives the name on the wire, then the field. Fields under
/// `always` are written even when they are empty, as upstream writes those without `omitempty`.
macro_rules! object {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fmeta:meta])* $wire:literal $field:ident: $ty:ty, )*
        } $( always { $( $(#[$kmeta:meta])* $kwire:literal $kfield:ident: $kty:ty, )* } )?
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct $name {
            $($( $(#[$kmeta])* pub $kfield: $kty, )*)?
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        impl $crate::json::Object for $name {
            const NAME: &'static str = stringify!($name);

            fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match key {
                    $($( $kwire => self.$kfield = $crate::json::read(key, map)?, )*)?
                    $( $wire => self.$field = $crate::json::read(key, map)?, )*
                    _ => $crate::json::skip(map)?,
                }
                Ok(())
            }

            fn write_fields<M: serde::ser::SerializeMap>(
                &self,
                map: &mut M,
            ) -> Result<(), M::Error> {
                $($( map.serialize_entry($kwire, &self.$kfield)?; )*)?
                $( $crate::json::write($wire, &self.$field, map)?; )*
                let _ = map;
                Ok(())
            }
        }

        $crate::json::object_codec!($name);
    )*};
}

/// The serde half of an object whose fields are read and written by hand.
macro_rules! object_codec {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                $crate::json::write_object(self, out)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::json::read_object(from)
            }
        }
    };
}

pub(crate) use {object, object_codec};

/// A value, or the empty one in the place of `null`.
struct OrDefault<T>(T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for OrDefault<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(from).map(|value| OrDefault(value.unwrap_or_default()))
    }
}

pub(crate) fn read<'de, T, A>(key: &str, map: &mut A) -> Result<T, A::Error>
where
    T: Deserialize<'de> + Default,
    A: MapAccess<'de>,
{
    match map.next_value::<OrDefault<T>>() {
        Ok(value) => Ok(value.0),
        Err(error) => Err(at_field(key, error)),
    }
}

/// The error with the field before it; apart, since `read` is there once for each type of field.
#[cold]
#[inline(never)]
fn at_field<E: serde::de::Error>(key: &str, error: E) -> E {
    let inner = error.to_string();
    let joint = if inner.starts_with('.') { "" } else { ": " };
    E::custom(format_args!(".{key}{joint}{inner}"))
}

pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

pub(crate) fn write<T, M>(key: &'static str, value: &T, map: &mut M) -> Result<(), M::Error>
where
    T: Serialize + Default + PartialEq,
    M: SerializeMap,
{
    if *value == T::default() { Ok(()) } else { map.serialize_entry(key, value) }
}

pub(crate) fn write_object<T: Object + Serialize, S: Serializer>(
    object: &T,
    out: S,
) -> Result<S::Ok, S::Error> {
    if !out.is_human_readable() {
        return out.serialize_bytes(&serde_json::to_vec(object).map_err(S::Error::custom)?);
    }
    let mut map = out.serialize_map(None)?;
    object.write_fields(&mut map)?;
    map.end()
}

pub(crate) fn read_object<'de, T: Object, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    if from.is_human_readable() {
        from.deserialize_map(Fields(PhantomData))
    } else {
        from.deserialize_bytes(Embedded(PhantomData))
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Object> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object ({})", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut object = T::default();
        while let Some(key) = map.next_key::<Key>()? {
            object.read_field(key.as_str(), &mut map)?;
        }
        Ok(object)
    }
}

struct Embedded<T>(PhantomData<T>);

impl<'de, T: Object> Visitor<'de> for Embedded<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the JSON of an object ({})", T::NAME)
    }

    fn visit_bytes<E: serde::de::Error>(self, json: &[u8]) -> Result<T, E> {
        serde_json::from_slice(json).map_err(E::custom)
    }
}

/// A key, on the stack: the longest field name upstream has 36 bytes, and what is longer matches no
/// field anyway.
struct Key {
    bytes: [u8; Key::LENGTH_MAX],
    length: usize,
}

impl Key {
    const LENGTH_MAX: usize = 40;

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).expect("copied from a str as a whole")
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Key, E> {
        let mut key = Key { bytes: [0; Key::LENGTH_MAX], length: 0 };
        if let Some(room) = key.bytes.get_mut(..name.len()) {
            room.copy_from_slice(name.as_bytes());
            key.length = name.len();
        }
        Ok(key)
    }
}

/// Reads an object from its JSON. The error names the field and not the place in the text, since it is often not
/// the text that people wrote.
///
/// One way in for all: what reads from anything else is a second copy of every object's code.
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        let text = error.to_string();
        text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).into()
    })
}

/// The JSON of an object. Objects hold nothing that JSON cannot express, so this cannot fail.
pub fn to_vec<T: Serialize>(object: &T) -> Vec<u8> {
    serde_json::to_vec(object).expect("a Kubernetes object has string keys and finite numbers only")
}

#[cfg(test)]
mod tests {
    use crate::container::{ContainerPort, EphemeralContainer};
    use crate::pod::{Pod, PodList};
    use crate::volume::Volume;

    use super::*;

    #[test]
    fn read_and_written_back() {
        fn check<T: Object + Serialize + PartialEq + fmt::Debug>(json: &str, want: &str) {
            let object: T = serde_json::from_str(json).expect(json);
            let written = String::from_utf8(to_vec(&object)).expect("JSON is UTF-8");
            assert_eq!(written, want);
            assert_eq!(serde_json::from_str::<T>(want).ok(), Some(object));
        }
        check::<Pod>("{}", "{}");
        check::<Pod>(r#"{"kind":"Pod","unknown":[1,{"a":null}],"spec":null}"#, r#"{"kind":"Pod"}"#);
        check::<Pod>(
            r#"{"spec":{"containers":[{"name":"a","env":null,"resources":{"limits":null}}]}}"#,
            r#"{"spec":{"containers":[{"name":"a"}]}}"#,
        );
        check::<Pod>(r#"{"kind":"A","kind":"B"}"#, r#"{"kind":"B"}"#);
        check::<Pod>(
            r#"{"spec":{"affinity":{"z":[1],"a":{}},"overhead":{"cpu":2}}}"#,
            r#"{"spec":{"containers":[],"affinity":{"a":{},"z":[1]},"overhead":{"cpu":"2"}}}"#,
        );
        check::<PodList>("{}", r#"{"items":[]}"#);
        check::<ContainerPort>(r#"{"hostIP":"::"}"#, r#"{"containerPort":0,"hostIP":"::"}"#);
        check::<EphemeralContainer>(
            r#"{"targetContainerName":"b","name":"a","stdin":true}"#,
            r#"{"name":"a","stdin":true,"targetContainerName":"b"}"#,
        );
        check::<Volume>(
            r#"{"vsphereVolume":{"x":1},"nfs":{"path":"/"},"rbd":null,"emptyDir":{},"name":"v"}"#,
            r#"{"name":"v","emptyDir":{},"nfs":{"path":"/"},"vsphereVolume":{"x":1}}"#,
        );
        check::<Volume>(r#"{"name":"v","emptyDir":{},"emptyDir":null}"#, r#"{"name":"v"}"#);
    }

    #[test]
    fn errors_name_the_field() {
        fn check(json: &str, want: &str) {
            assert_eq!(from_slice::<Pod>(json.as_bytes()), Err(want.into()));
        }
        check(
            r#"{"spec":{"containers":[{"image":5}]}}"#,
            ".spec.containers.image: invalid type: integer `5`, expected a string",
        );
        check(
            r#"{"spec":{"hostNetwork":"yes"}}"#,
            ".spec.hostNetwork: invalid type: string \"yes\", expected a boolean",
        );
        check(
            r#"{"metadata":[]}"#,
            ".metadata: invalid type: sequence, expected an object (ObjectMeta)",
        );
        check(
            r#"{"metadata":{"creationTimestamp":"now"}}"#,
            ".metadata.creationTimestamp: \"now\" is not a time as in RFC 3339",
        );
    }

    #[test]
    fn snapshots_hold_objects_whole() {
        let json = r#"{"name":"v","emptyDir":{"sizeLimit":"1Gi"},"nfs":{"path":"/"}}"#;
        let volume: Volume = serde_json::from_str(json).expect("a volume");
        let snapshot = postcard::to_allocvec(&(1u8, &volume, 2u8)).expect("room");
        let back: (u8, Volume, u8) = postcard::from_bytes(&snapshot).expect("what was written");
        assert_eq!(back, (1, volume, 2));
    }

    #[test]
    fn every_other_volume_source_is_found_by_search() {
        assert!(crate::volume::OTHER_SOURCES.is_sorted());
    }
}
