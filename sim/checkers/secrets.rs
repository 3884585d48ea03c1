//! What is secret stays behind the doors: a tape must be fit to be attached to a public bug report.

use super::Judge;
use crate::doors::api::Stored;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use steplet_core::chain::{encode_effects, encode_event};
use steplet_core::effect::{Call, Effect};
use steplet_core::event::Event;

/// How every token of a ServiceAccount begins: `{"alg":` in base64.
const TOKEN: &str = "eyJhbGciOi";
/// What is shorter may stand somewhere by chance.
const BYTES_LEAST: usize = 6;

#[derive(Default)]
pub struct Secrets {
    /// Values of Secrets, as they are and in base64.
    values: BTreeSet<Vec<u8>>,
    /// Something secret was asked for.
    asked: bool,
}

impl Secrets {
    fn look(&self, bytes: &[u8], whose: &str, out: &mut Vec<String>) {
        let token = TOKEN.as_bytes().to_vec();
        for value in self.values.iter().chain([&token]) {
            if bytes.windows(value.len()).any(|window| window == value) {
                out.push(format!("{:?} in {whose}", String::from_utf8_lossy(value)));
            }
        }
    }
}

impl Judge for Secrets {
    fn promise(&self) -> &'static str {
        "no secret is in an event or an effect"
    }

    fn stored(&mut self, _: &Ledger, _: Moment, stored: &Stored, _: &mut Vec<String>) {
        if stored.plural == "secrets" {
            let values = stored.object["data"].as_object().into_iter().flatten();
            for coded in values.filter_map(|(_, value)| value.as_str()) {
                let open = STANDARD.decode(coded).unwrap_or_default();
                let both = [coded.as_bytes().to_vec(), open];
                self.values.extend(both.into_iter().filter(|value| value.len() >= BYTES_LEAST));
            }
        }
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, out: &mut Vec<String>) {
        if self.asked {
            self.look(&encode_event(event), "an event", out);
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        self.asked |= effects.iter().any(|(effect, _)| match effect {
            Effect::Call { call: Call::Api(call), .. } => call.seals,
            _ => false,
        });
        if self.asked {
            for (effect, _) in effects {
                let bytes = encode_effects(std::slice::from_ref(effect));
                self.look(&bytes, "an effect", out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_wherever_they_stand() {
        let judge = Secrets { values: [b"s3cret".to_vec()].into(), asked: true };
        let check = |text: &str, want: usize| {
            let mut out = Vec::new();
            judge.look(text.as_bytes(), "a text", &mut out);
            assert_eq!(out.len(), want, "{text}");
        };
        check("", 0);
        check("s3cre", 0);
        check("password=s3cret;", 1);
        check("Bearer eyJhbGciOiJSUzI1NiJ9.x.y and s3cret", 2);
    }
}
