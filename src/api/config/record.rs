//! How a configuration stands in JSON: read strictly with all problems at once, written as upstream
//! writes it.
//!
//! serde's derive stops at the first error; whoever upgrades a node wants them all. So each record
//! is one table of fields, made by the macro `record!`, and three walks over it: read, write, and
//! list the paths.

use super::problem::{Problem, Problems};
use crate::quantity::Quantity;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Number, Value};

/// Reads one document into a record and remembers what was wrong with it.
pub struct Reader {
    pub(super) problems: Problems,
    /// Whether `0`, `""` and `0s` stand for "not set" where upstream's defaulting says so. True for
    /// files; a flag that says 0 means it.
    pub(super) zero_is_unset: bool,
    /// Whether null takes a value away, as in the merge patch of a drop-in.
    pub(super) patch: bool,
}

impl Reader {
    pub(super) fn new(zero_is_unset: bool, patch: bool) -> Self {
        Reader { problems: Problems::default(), zero_is_unset, patch }
    }

    /// A value of the wrong kind.
    pub(super) fn mistyped(&mut self, wants: &'static str, value: &Value) {
        let quote = wants == "a string" && matches!(value, Value::Number(_) | Value::Bool(_));
        // Headers carry credentials, and problems are logged.
        let secret = self.problems.place().starts_with("staticPodURLHeader");
        let found = if secret && value.is_string() { "a string".into() } else { shown(value) };
        self.problems.push(Problem::mistyped(wants, &found, quote));
    }

    pub(super) fn invalid(&mut self, what: String) {
        self.problems.push(Problem::invalid(what));
    }
}

/// What a value is, for a message.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_string(),
        Value::Bool(bool) => format!("the boolean {bool}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string \"{text}\""),
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "a map".to_string(),
    }
}

/// A value that a field can hold.
pub trait Field: Sized {
    /// Takes `value` over, or leaves itself as it is and adds a problem. Null leaves it alone, as
    /// in Go.
    fn read(&mut self, value: &Value, reader: &mut Reader);
    fn write(&self) -> Value;
    /// Whether Go's `omitempty` would leave it out.
    fn omitted(&self) -> bool;
    /// Go's zero value, which upstream's defaulting takes for "not set".
    fn is_zero(&self) -> bool {
        self.omitted()
    }
    /// Adds the paths of all values in here to `out`; most fields are one.
    #[cfg(test)]
    fn paths(at: &str, out: &mut Vec<String>) {
        out.push(at.to_string());
    }
}

impl Field for bool {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        match value {
            Value::Bool(bool) => *self = *bool,
            Value::Null => {}
            _ => reader.mistyped("true or false", value),
        }
    }
    fn write(&self) -> Value {
        Value::Bool(*self)
    }
    fn omitted(&self) -> bool {
        !*self
    }
}

macro_rules! integer {
    ($($ty:ty: $wants:literal)*) => {$(
        impl Field for $ty {
            fn read(&mut self, value: &Value, reader: &mut Reader) {
                match value.as_i64().and_then(|int| <$ty>::try_from(int).ok()) {
                    Some(int) => *self = int,
                    None if value.is_null() => {}
                    None => reader.mistyped($wants, value),
                }
            }
            fn write(&self) -> Value {
                Value::Number(Number::from(*self))
            }
            fn omitted(&self) -> bool {
                *self == 0
            }
        }
    )*};
}

integer! {
    i32: "an integer of 32 bits"
    i64: "an integer"
    u32: "an integer from 0 to 4294967295"
}

impl Field for String {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        match value {
            Value::String(text) => self.clone_from(text),
            Value::Null => {}
            _ => reader.mistyped("a string", value),
        }
    }
    fn write(&self) -> Value {
        Value::String(self.clone())
    }
    fn omitted(&self) -> bool {
        self.is_empty()
    }
}

impl Field for Quantity {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => return,
            _ => return reader.mistyped("a quantity", value),
        };
        match Quantity::parse(&text) {
            Ok(quantity) => *self = quantity,
            Err(error) => reader.invalid(format!("\"{text}\": {error}")),
        }
    }
    fn write(&self) -> Value {
        Value::String(self.to_string())
    }
    fn omitted(&self) -> bool {
        false
    }
}

impl<T: Field + Default> Field for Option<T> {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        if !value.is_null() {
            let mut some = T::default();
            some.read(value, reader);
            *self = Some(some);
        }
    }
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }
    fn omitted(&self) -> bool {
        self.is_none()
    }
    #[cfg(test)]
    fn paths(at: &str, out: &mut Vec<String>) {
        T::paths(at, out);
    }
}

impl<T: Field + Default> Field for Vec<T> {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        let Value::Array(items) = value else {
            if !value.is_null() {
                reader.mistyped("a list", value);
            }
            return;
        };
        *self = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let mut element = T::default();
            let outer = reader.problems.enter_index(i);
            element.read(item, reader);
            reader.problems.leave(outer);
            self.push(element);
        }
    }
    fn write(&self) -> Value {
        Value::Array(self.iter().map(T::write).collect())
    }
    fn omitted(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Field + Default> Field for BTreeMap<String, T> {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        let Value::Object(entries) = value else {
            if !value.is_null() {
                reader.mistyped("a map", value);
            }
            return;
        };
        self.clear();
        for (key, entry) in entries {
            let mut element = T::default();
            let outer = reader.problems.enter_key(key);
            element.read(entry, reader);
            reader.problems.leave(outer);
            self.insert(key.clone(), element);
        }
    }
    fn write(&self) -> Value {
        Value::Object(self.iter().map(|(key, element)| (key.clone(), element.write())).collect())
    }
    fn omitted(&self) -> bool {
        self.is_empty()
    }
}

/// What the macro makes for a record: a struct of named fields.
pub(super) trait Record {
    const FIELDS: &'static [&'static str];

    /// Reads the value of one key; false when no field has this name.
    fn read_field(&mut self, key: &str, value: &Value, reader: &mut Reader) -> bool;

    fn write_fields(&self, out: &mut Map<String, Value>);
}

/// Reads the keys of an object over what the record holds; fields without a key stay as they are.
pub(super) fn read_record<R: Record>(record: &mut R, value: &Value, reader: &mut Reader) {
    let Value::Object(fields) = value else {
        if !value.is_null() {
            reader.mistyped("a map", value);
        }
        return;
    };
    for (key, value) in fields {
        let outer = reader.problems.enter_key(key);
        if !record.read_field(key, value, reader) {
            reader.problems.push(Problem::unknown(key, R::FIELDS));
        }
        reader.problems.leave(outer);
    }
}

/// A pointer in Go: only null and absence mean "not set".
pub(super) fn read_nil<T: Field>(slot: &mut T, value: &Value, reader: &mut Reader) {
    if !value.is_null() {
        slot.read(value, reader);
    }
}

/// A plain value in Go whose zero upstream's defaulting replaces.
pub(super) fn read_zero<T: Field>(slot: &mut T, value: &Value, reader: &mut Reader, default: T) {
    slot.read(value, reader);
    if reader.zero_is_unset && slot.is_zero() {
        *slot = default;
    }
}

/// Leaves out what Go's `omitempty` leaves out.
pub(super) fn write_full<T: Field>(slot: &T, wire: &str, out: &mut Map<String, Value>) {
    if !slot.omitted() {
        out.insert(wire.to_string(), slot.write());
    }
}

/// Declares a record: a line gives the name on the wire, the field, its type and what it is when
/// nothing is set.
///
/// - `= nil(DEFAULT)`: a pointer in Go. Absent or null is the default, zero is meant; always
///   written.
/// - `= zero(DEFAULT)`: no pointer. Absent, null or zero is the default; not written when empty.
/// - `= keep(DEFAULT)`: without `omitempty`; always written.
/// - `= absent(DEFAULT)`: absent or null is the default, empty is meant; not written when empty.
/// - nothing: the type's empty value, not written.
macro_rules! record {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fmeta:meta])* $wire:literal $field:ident: $ty:ty
                $(= $kind:ident($default:expr))?, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $(
                    $field: $crate::config::record::record!(@default $ty $(, $default)?),
                )* }
            }
        }

        impl $crate::config::record::Record for $name {
            const FIELDS: &'static [&'static str] = &[$($wire),*];

            fn read_field(
                &mut self,
                key: &str,
                value: &serde_json::Value,
                reader: &mut $crate::config::record::Reader,
            ) -> bool {
                match key {
                    $( $wire => $crate::config::record::record!(
                        @read self.$field, value, reader $(, $kind($default))?
                    ), )*
                    _ => return false,
                }
                true
            }

            fn write_fields(
                &self,
                out: &mut serde_json::Map<alloc::string::String, serde_json::Value>,
            ) {
                $( $crate::config::record::record!(@write self.$field, $wire, out $(, $kind)?); )*
            }
        }

        impl $crate::config::record::Field for $name {
            fn read(
                &mut self,
                value: &serde_json::Value,
                reader: &mut $crate::config::record::Reader,
            ) {
                $crate::config::record::read_record(self, value, reader);
            }
            fn write(&self) -> serde_json::Value {
                let mut out = serde_json::Map::new();
                $crate::config::record::Record::write_fields(self, &mut out);
                serde_json::Value::Object(out)
            }
            fn omitted(&self) -> bool {
                false
            }
            #[cfg(test)]
            fn paths(at: &str, out: &mut alloc::vec::Vec<alloc::string::String>) {
                $(
                    let mut path = alloc::string::String::from(at);
                    $crate::config::problem::push_key(&mut path, $wire);
                    <$ty as $crate::config::record::Field>::paths(&path, out);
                )*
            }
        }
    )*};
    (@default $ty:ty) => { <$ty as Default>::default() };
    (@default $ty:ty, $default:expr) => { $default };
    (@read $slot:expr, $value:ident, $reader:ident) => {
        $crate::config::record::Field::read(&mut $slot, $value, $reader)
    };
    (@read $slot:expr, $value:ident, $reader:ident, zero($default:expr)) => {
        $crate::config::record::read_zero(&mut $slot, $value, $reader, $default)
    };
    (@read $slot:expr, $value:ident, $reader:ident, keep($default:expr)) => {
        $crate::config::record::Field::read(&mut $slot, $value, $reader)
    };
    (@read $slot:expr, $value:ident, $reader:ident, $kind:ident($default:expr)) => {
        $crate::config::record::read_nil(&mut $slot, $value, $reader)
    };
    (@write $slot:expr, $wire:literal, $out:ident) => {
        $crate::config::record::write_full(&$slot, $wire, $out)
    };
    (@write $slot:expr, $wire:literal, $out:ident, zero) => {
        $crate::config::record::write_full(&$slot, $wire, $out)
    };
    (@write $slot:expr, $wire:literal, $out:ident, absent) => {
        $crate::config::record::write_full(&$slot, $wire, $out)
    };
    (@write $slot:expr, $wire:literal, $out:ident, $kind:ident) => {
        $out.insert($wire.into(), $crate::config::record::Field::write(&$slot))
    };
}

pub(super) use record;
