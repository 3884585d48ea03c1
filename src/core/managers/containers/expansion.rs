//! Texts in which secrets may stand, and the expansion of `$(NAME)` in them.
//!
//! Upstream: third_party/forked/golang/expansion (v1.36). A secret is not known here: it is carried along as its seal
//! and put in by the door of the runtime.

use crate::effect::Content;
use crate::managers::containers::ConfigError;
use crate::sealed::Sealed;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;

/// The longest string that the kernel takes as an argument or a variable (MAX_ARG_STRLEN). Values may refer to each
/// other, so without a bound a short manifest could ask for any amount of memory.
const TEXT_MAX: usize = 128 * 1024;
/// What a seal counts for in that.
const SEAL_BYTES: usize = 64;

/// The value of a variable, or an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// What stands before `rest`; ends with a seal if it is not empty.
    before: Vec<Content>,
    rest: String,
}

/// Variables by name.
pub type Env = BTreeMap<String, Text>;

impl Text {
    /// A value of a Secret.
    pub fn secret(seal: Sealed) -> Text {
        Text { before: [Content::Decoded(seal)].into(), rest: String::new() }
    }

    /// The text itself, unless a secret stands in it.
    pub fn plain(&self) -> Option<&str> {
        self.before.is_empty().then_some(&self.rest)
    }

    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.rest.is_empty()
    }

    /// Its parts, for the door.
    pub fn into_parts(self) -> Vec<Content> {
        let mut parts = self.before;
        if !self.rest.is_empty() {
            parts.push(Content::Plain(Bytes::from(self.rest)));
        }
        parts
    }

    fn push(&mut self, more: &Text) {
        if !more.before.is_empty() {
            if !self.rest.is_empty() {
                let rest = core::mem::take(&mut self.rest);
                self.before.push(Content::Plain(Bytes::from(rest)));
            }
            self.before.extend(more.before.iter().cloned());
        }
        self.rest.push_str(&more.rest);
    }

    fn weight(&self) -> usize {
        let before = self.before.iter().map(|part| match part {
            Content::Plain(bytes) => bytes.len(),
            Content::Sealed(_) | Content::Decoded(_) => SEAL_BYTES,
        });
        before.sum::<usize>() + self.rest.len()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text { before: Vec::new(), rest: text.into() }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text { before: Vec::new(), rest: text }
    }
}

/// Puts the values of variables in the place of `$(NAME)`; what is unknown stays as it is written,
/// `$$` stands for `$`.
pub fn expand(text: &str, env: &Env) -> Result<Text, ConfigError> {
    expand_with(text, |name| match env.get(name) {
        Some(value) => value.clone(),
        None => format!("$({name})").into(),
    })
}

/// The same for `subPathExpr`, where every variable must have a value. The path is told to the runtime and written
/// down, so no secret may stand in it.
pub fn expand_sub_path(text: &str, env: &Env) -> Result<String, ConfigError> {
    let mut missing = Vec::new();
    let path = expand_with(text, |name| match env.get(name) {
        Some(value) if !value.is_empty() => value.clone(),
        _ => {
            missing.push(name.to_string());
            Text::default()
        }
    })?;
    if !missing.is_empty() {
        missing.sort();
        missing.dedup();
        return Err(ConfigError(format!("missing value for {}", missing.join(", "))));
    }
    let secret = || ConfigError(format!("a secret may not stand in subPathExpr {text:?}"));
    path.plain().map(ToString::to_string).ok_or_else(secret)
}

fn expand_with(text: &str, mut value: impl FnMut(&str) -> Text) -> Result<Text, ConfigError> {
    let mut out = Text::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.rest.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.rest.push('$');
            rest = after;
            continue;
        }
        match rest.strip_prefix('(').and_then(|reference| reference.split_once(')')) {
            Some((name, after)) => {
                out.push(&value(name));
                rest = after;
                if out.weight() > TEXT_MAX {
                    let text = format!("a variable or argument grows beyond {TEXT_MAX} bytes");
                    return Err(ConfigError(text));
                }
            }
            None => out.rest.push('$'),
        }
    }
    out.rest.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion() {
        fn check(text: &str, want: &str) {
            let env = Env::from(
                [("A", "one"), ("EMPTY", ""), ("X", "$(A)")].map(|(k, v)| (k.into(), v.into())),
            );
            assert_eq!(expand(text, &env).unwrap().plain(), Some(want), "{text}");
        }
        check("", "");
        check("plain $ text", "plain $ text");
        check("$(A)", "one");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$one");
        check("$(NOPE)-$(A)", "$(NOPE)-one");
        check("$(X)", "$(A)");
        check("$(EMPTY)|", "|");
        check("a$", "a$");
        check("$(A", "$(A");
        check("$A ${A}", "$A ${A}");
        check("$é$(A)", "$éone");
        check("$(A$(A))", "$(A$(A))");
        check("$()", "$()");
    }

    #[test]
    fn secrets_are_carried_as_seals() {
        fn check(text: &str, want: &[Content]) {
            let secret = Text::secret(Sealed::numbered(7));
            let env = Env::from([("S".into(), secret), ("A".into(), "one".into())]);
            let text = expand(text, &env).unwrap();
            let env = Env::from([("T".into(), text)]);
            assert_eq!(expand("$(T)", &env).unwrap().into_parts(), want);
        }
        let plain = |text: &'static str| Content::Plain(text.into());
        let seal = || Content::Decoded(Sealed::numbered(7));
        check("$(S)", &[seal()]);
        check("$(A):$(S)@host", &[plain("one:"), seal(), plain("@host")]);
        check("$(S)$(S)", &[seal(), seal()]);
        check("$$(S)", &[plain("$(S)")]);
        check("", &[]);
    }

    #[test]
    fn nothing_grows_without_end() {
        let mut env = Env::from([("A".into(), Text::secret(Sealed::numbered(1)))]);
        let double = |env: &mut Env| {
            let twice = expand("$(A)$(A)", env)?;
            env.insert("A".into(), twice);
            Ok::<_, ConfigError>(())
        };
        let doubled = (0..64).take_while(|_| double(&mut env).is_ok()).count();
        assert_eq!(doubled, 11);
    }

    #[test]
    fn sub_paths_need_every_value() {
        let env = Env::from([
            ("A".into(), "one".into()),
            ("EMPTY".into(), Text::default()),
            ("S".into(), Text::secret(Sealed::numbered(1))),
        ]);
        assert_eq!(expand_sub_path("x/$(A)", &env).unwrap(), "x/one");
        let check = |text, want| assert_eq!(expand_sub_path(text, &env).unwrap_err().0, want);
        check("$(Z)/$(EMPTY)/$(Z)", "missing value for EMPTY, Z");
        check("a/$(S)", "a secret may not stand in subPathExpr \"a/$(S)\"");
    }
}
