//! What every Kubernetes object has: metadata, owners, points in time, selectors, and numbers that
//! may be names.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::object;
use crate::time::Time;

object! {
    /// ObjectMeta of meta/v1. `managedFields` and `selfLink` are not kept: no part of a kubelet
    /// reads them.
    pub struct ObjectMeta {
        "name" name: Box<str>,
        "generateName" generate_name: Box<str>,
        "namespace" namespace: Box<str>,
        "uid" uid: Box<str>,
        "resourceVersion" resource_version: Box<str>,
        "generation" generation: i64,
        "creationTimestamp" creation_timestamp: Time,
        "deletionTimestamp" deletion_timestamp: Option<Time>,
        "deletionGracePeriodSeconds" deletion_grace_period_seconds: Option<i64>,
        "labels" labels: BTreeMap<Box<str>, Box<str>>,
        "annotations" annotations: BTreeMap<Box<str>, Box<str>>,
        "ownerReferences" owner_references: Vec<OwnerReference>,
        "finalizers" finalizers: Vec<Box<str>>,
    }

    /// ListMeta of meta/v1.
    pub struct ListMeta {
        "resourceVersion" resource_version: Box<str>,
        "continue" continue_token: Box<str>,
        "remainingItemCount" remaining_item_count: Option<i64>,
    }

    /// The object that owns this one; when it goes, this one is garbage.
    pub struct OwnerReference {
        "controller" controller: Option<bool>,
        "blockOwnerDeletion" block_owner_deletion: Option<bool>,
    } always {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "name" name: Box<str>,
        "uid" uid: Box<str>,
    }

    /// A query over labels; all of its parts must hold.
    pub struct LabelSelector {
        "matchLabels" match_labels: BTreeMap<Box<str>, Box<str>>,
        "matchExpressions" match_expressions: Vec<LabelSelectorRequirement>,
    }

    /// `operator` is In, NotIn, Exists or DoesNotExist.
    pub struct LabelSelectorRequirement {
        "values" values: Vec<Box<str>>,
    } always {
        "key" key: Box<str>,
        "operator" operator: Box<str>,
    }
}

/// An object with metadata.
pub trait Named {
    fn metadata(&self) -> &ObjectMeta;
}

macro_rules! named {
    ($($object:ty),*) => {
        $(impl $crate::meta::Named for $object {
            fn metadata(&self) -> &$crate::meta::ObjectMeta {
                &self.metadata
            }
        })*
    };
}
pub(crate) use named;

/// A number, or the name of one: a port may be `8080` or `"http"`. The default is 0, as in Go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IntOrString {
    Int(i32),
    String(Box<str>),
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => write!(out, "{number}"),
            IntOrString::String(name) => out.write_str(name),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(number) => out.serialize_i32(*number),
            IntOrString::String(name) => out.serialize_str(name),
        }
    }
}

/// Snapshots hold a number or name only inside of objects, which are JSON there too, so
/// `deserialize_any` will do.
impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(IntOrStringVisitor)
    }
}

struct IntOrStringVisitor;

impl Visitor<'_> for IntOrStringVisitor {
    type Value = IntOrString;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a 32-bit integer or a string")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<IntOrString, E> {
        let number = i32::try_from(number)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))?;
        Ok(IntOrString::Int(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<IntOrString, E> {
        let number = i32::try_from(number)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))?;
        Ok(IntOrString::Int(number))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<IntOrString, E> {
        Ok(IntOrString::String(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_or_a_name() {
        fn check(json: &str, want: Option<IntOrString>) {
            assert_eq!(serde_json::from_str(json).ok(), want, "{json}");
        }
        check("8080", Some(IntOrString::Int(8080)));
        check("-1", Some(IntOrString::Int(-1)));
        check("\"http\"", Some(IntOrString::String("http".into())));
        check("\"8080\"", Some(IntOrString::String("8080".into())));
        check("2147483648", None);
        check("1.5", None);
        check("true", None);
    }
}
