//! Whether a pod may be run: the checks that the API server makes when a pod is created, for pods
//! that never pass through it. All problems are found in one go, each with the path of its field.
//!
//! Upstream: ValidatePodCreate in k8s.io/kubernetes/pkg/apis/core/validation (1.36, gates as
//! shipped), and for static pods HasAPIObjectReference in pkg/api/pod. Not checked, since a kubelet
//! does not look into them: `affinity`, `topologySpreadConstraints`, what volume sources hold that
//! are known by name only, and Windows settings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::pod::Pod;

mod container;
mod env;
mod handler;
mod metadata;
mod mounts;
pub mod names;
mod pod;
mod resources;
mod security;
mod static_pod;
mod volume;

/// Beyond so many problems a list helps nobody.
pub const PROBLEMS_MAX: usize = 64;
/// Bytes of a value that a problem quotes.
const QUOTED_MAX: usize = 256;

/// What is wrong with a static pod after defaulting; empty if it may be run. At most
/// `PROBLEMS_MAX`.
pub fn validate_static_pod(pod: &Pod) -> Vec<Problem> {
    let mut problems = Problems::default();
    metadata::check(&mut problems, pod);
    pod::check_spec(&mut problems, &pod.spec);
    static_pod::check_references(&mut problems, &pod.spec);
    problems.list
}

/// One thing that is wrong, written as Kubernetes writes field errors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// As in `spec.containers[0].name`.
    pub path: String,
    pub kind: Kind,
    /// The value found there, strings in quotes; empty for kinds that show none.
    pub value: String,
    /// What would be right; may be empty.
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Required,
    Invalid,
    Duplicate,
    Unsupported,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Required => "Required value",
            Kind::Invalid => "Invalid value",
            Kind::Duplicate => "Duplicate value",
            Kind::Unsupported => "Unsupported value",
            Kind::Forbidden => "Forbidden",
            Kind::NotFound => "Not found",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.kind.as_str())?;
        for part in [&self.value, &self.message] {
            if !part.is_empty() {
                write!(out, ": {part}")?;
            }
        }
        Ok(())
    }
}

/// The problems found so far.
#[derive(Default)]
struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, at: &Path<'_>, kind: Kind, value: String, message: impl fmt::Display) {
        if self.list.len() < PROBLEMS_MAX {
            let value = cut(value);
            self.list.push(Problem {
                path: at.to_string(),
                kind,
                value,
                message: message.to_string(),
            });
        }
    }

    fn required(&mut self, at: &Path<'_>, message: &str) {
        self.add(at, Kind::Required, String::new(), message);
    }

    /// Adds a problem if the field is empty; says whether it is filled.
    fn require(&mut self, at: &Path<'_>, value: &str) -> bool {
        if value.is_empty() {
            self.required(at, "");
        }
        !value.is_empty()
    }

    fn invalid(&mut self, at: &Path<'_>, value: impl fmt::Debug, message: impl fmt::Display) {
        self.add(at, Kind::Invalid, format!("{value:?}"), message);
    }

    fn duplicate(&mut self, at: &Path<'_>, value: &str) {
        self.add(at, Kind::Duplicate, format!("{value:?}"), "");
    }

    fn not_found(&mut self, at: &Path<'_>, value: &str) {
        self.add(at, Kind::NotFound, format!("{value:?}"), "");
    }

    fn forbidden(&mut self, at: &Path<'_>, message: impl fmt::Display) {
        self.add(at, Kind::Forbidden, String::new(), message);
    }

    fn too_long(&mut self, at: &Path<'_>, bytes_max: usize) {
        let message = format_args!("may not be more than {bytes_max} bytes");
        self.add(at, Kind::TooLong, String::new(), message);
    }

    fn too_many(&mut self, at: &Path<'_>, count: usize, max: usize) {
        let message = format_args!("must have at most {max} items");
        self.add(at, Kind::TooMany, count.to_string(), message);
    }

    /// Adds a problem unless the value is one of those known.
    fn one_of(&mut self, at: &Path<'_>, value: &str, known: &[&str]) {
        if !known.contains(&value) {
            let known: Vec<_> = known.iter().map(|known| format!("{known:?}")).collect();
            let message = format_args!("supported values: {}", known.join(", "));
            self.add(at, Kind::Unsupported, format!("{value:?}"), message);
        }
    }

    /// Adds a problem if a rule of `names` finds one.
    fn name(&mut self, at: &Path<'_>, value: &str, rule: names::Rule) {
        if let Some(message) = rule(value) {
            self.invalid(at, value, message);
        }
    }

    /// A name that must be there and follow a rule.
    fn required_name(&mut self, at: &Path<'_>, value: &str, rule: names::Rule) {
        if self.require(at, value) {
            self.name(at, value, rule);
        }
    }

    fn not_negative(&mut self, at: &Path<'_>, number: i64) {
        if number < 0 {
            self.invalid(at, number, "must be greater than or equal to 0");
        }
    }

    fn within(&mut self, at: &Path<'_>, number: i64, range: core::ops::RangeInclusive<i64>) {
        if !range.contains(&number) {
            let (low, high) = (range.start(), range.end());
            self.invalid(at, number, format_args!("must be between {low} and {high}, inclusive"));
        }
    }
}

/// A value may be as long as a file; a problem is for reading.
fn cut(mut value: String) -> String {
    if value.len() > QUOTED_MAX {
        value.truncate(value.floor_char_boundary(QUOTED_MAX));
        value.push_str("...");
    }
    value
}

/// The way to a field. It lives on the stack and becomes text only when there is something to say.
#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    const fn root(field: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(field) }
    }

    fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(out, "{parent}")?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_none() => out.write_str(name),
            Step::Field(name) => write!(out, ".{name}"),
            Step::Index(index) => write!(out, "[{index}]"),
            Step::Key(key) => write!(out, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod testing {
    use alloc::vec;

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::defaults;

    /// Checks a good pod in which the values at some JSON pointers are replaced: `want` are paths
    /// and kinds. The pod has two containers, `a` and `b`, an init container `i`, and emptyDir
    /// volumes `v` and `w`.
    pub fn check(changes: &[(&str, Value)], want: &[&str]) {
        let got: Vec<_> = problems(changes)
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.kind.as_str()))
            .collect();
        assert_eq!(got, want, "{changes:?}");
    }

    pub fn problems(changes: &[(&str, Value)]) -> Vec<Problem> {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "initContainers": [{"name": "i", "image": "x"}],
                "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}],
                "volumes": [{"name": "v"}, {"name": "w"}],
            },
        });
        for (pointer, value) in changes {
            *place(&mut pod, pointer) = value.clone();
        }
        let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
        defaults::apply(&mut pod);
        validate_static_pod(&pod)
    }

    /// The value at a pointer; objects and arrays on the way are made.
    fn place<'a>(root: &'a mut Value, pointer: &str) -> &'a mut Value {
        pointer.split('/').skip(1).fold(root, |value, step| match step.parse::<usize>() {
            Ok(index) => {
                if !value.is_array() {
                    *value = json!([]);
                }
                let list = value.as_array_mut().expect("made so");
                list.resize(list.len().max(index + 1), Value::Null);
                &mut list[index]
            }
            Err(_) => {
                if !value.is_object() {
                    *value = Value::Object(Map::new());
                }
                &mut value[step]
            }
        })
    }

    #[test]
    fn written_as_kubernetes_does() {
        fn check(pointer: &str, value: Value, want: &str) {
            let texts: Vec<_> =
                problems(&[(pointer, value)]).iter().map(Problem::to_string).collect();
            assert_eq!(texts, vec![want]);
        }
        check("/spec/containers/0/image", json!(""), "spec.containers[0].image: Required value");
        check(
            "/spec/os",
            json!({"name": "x"}),
            r#"spec.os: Unsupported value: "x": supported values: "linux", "windows""#,
        );
        check(
            "/spec/activeDeadlineSeconds",
            json!(0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, \
             inclusive",
        );
        check(
            "/spec/containers/1/name",
            json!("a"),
            r#"spec.containers[1].name: Duplicate value: "a""#,
        );
        check(
            "/spec/ephemeralContainers",
            json!([{"name": "e", "image": "x"}]),
            "spec.ephemeralContainers: Forbidden: may only be added to a running pod through the \
             API server",
        );
    }

    #[test]
    fn a_good_pod_has_none() {
        check(&[], &[]);
    }

    #[test]
    fn lists_and_values_are_bounded() {
        let ports = vec![json!({"containerPort": 0}); 2 * PROBLEMS_MAX];
        assert_eq!(problems(&[("/spec/containers/0/ports", json!(ports))]).len(), PROBLEMS_MAX);
        let found = problems(&[("/spec/hostname", json!("ä".repeat(100_000)))]);
        assert!(found[0].value.len() < 300, "{}", found[0]);
    }
}
