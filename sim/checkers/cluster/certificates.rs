//! Certificates are asked for with measure, and nobody but the disk door sees a private key.

use crate::checkers::Judge;
use crate::doors::api::{By, Stored};
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use serde_json::Value;
use std::collections::BTreeMap;
use steplet_core::chain::{encode_effects, encode_event};
use steplet_core::effect::{Call, Effect, HelperOp};
use steplet_core::event::{DiskReply, Event, HelperReply, Outcome};

const KEY: &[u8] = b"PRIVATE KEY";

#[derive(Default)]
pub struct Certificates {
    /// Requests that nobody has decided yet, each with its signer.
    open: BTreeMap<String, Value>,
}

impl Certificates {
    fn look(bytes: &[u8], whose: &str, out: &mut Vec<String>) {
        if bytes.windows(KEY.len()).any(|window| window == KEY) {
            out.push(format!("a private key in {whose}"));
        }
    }
}

impl Judge for Certificates {
    fn promise(&self) -> &'static str {
        "one request for a certificate at a time, and no private key beyond its door"
    }

    fn stored(&mut self, _: &Ledger, _: Moment, stored: &Stored, out: &mut Vec<String>) {
        if stored.plural != "certificatesigningrequests" {
            return;
        }
        let name = stored.name();
        let signer = stored.object["spec"]["signerName"].clone();
        if stored.gone || stored.object["status"]["conditions"].is_array() {
            self.open.remove(&name);
        } else if stored.before.is_none() && stored.by == By::Agent {
            if let Some((other, _)) = self.open.iter().find(|(_, open)| **open == signer) {
                out.push(format!("{name}, while {other} is open"));
            }
            self.open.insert(name, signer);
        }
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, out: &mut Vec<String>) {
        let Event::Done { outcome, .. } = event else { return };
        let of_pki = matches!(
            outcome,
            Outcome::Disk(Ok(DiskReply::Pair(_)))
                | Outcome::Helper(
                    Ok(HelperReply::Pair(_) | HelperReply::CertificateRequest { .. })
                )
        );
        if of_pki {
            Certificates::look(&encode_event(event), "an event", out);
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            let of_pki = match effect {
                Effect::Call { call: Call::Api(call), .. } => call.path.contains("certificates"),
                Effect::Call { call: Call::Helper(op), .. } => {
                    matches!(op, HelperOp::StorePair { .. } | HelperOp::WriteFile { .. })
                }
                _ => false,
            };
            if of_pki {
                let bytes = encode_effects(std::slice::from_ref(effect));
                Certificates::look(&bytes, "an effect", out);
            }
        }
    }
}
