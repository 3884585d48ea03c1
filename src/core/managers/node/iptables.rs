//! The chains of iptables that others count on: made at start, and again when somebody has emptied the tables.
//!
//! Upstream: pkg/kubelet/kubelet_network_linux.go (v1.36).
//! Owns: when to look next. Publishes: nothing. Hears: Booted. Says: nothing. Asks: KeepChains.
//! Never: looks while a look is under way, or complains twice of the same thing.

use crate::cx::Cx;
use crate::effect::{Call, HelperOp};
use crate::event::{Chains, Fault, FaultKind, HelperReply, Kept, Outcome};
use crate::time::{Mono, Span};
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// How long a table can be empty before that is seen.
const PERIOD: Span = Span::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iptables {
    /// None: a look is under way, or there is nothing to look at.
    next: Option<Mono>,
    /// All chains were there once: from then on the canary tells.
    stands: bool,
    /// The last complaint.
    told: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask;

impl Iptables {
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>) {
        if cx.facts.settings().iptables_chains {
            self.look(cx);
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_some_and(|at| at <= cx.now.mono) {
            self.look(cx);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        self.next = None;
        cx.call(Ask, Call::Helper(HelperOp::KeepChains { whole: !self.stands }));
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, outcome: Outcome) {
        self.next = Some(cx.now.mono + PERIOD);
        let chains = match outcome {
            Outcome::Helper(Ok(HelperReply::Chains(chains))) => chains,
            Outcome::Helper(Err(fault)) => return self.complain(&fault.message),
            _ => return self.complain("the helper gave no answer"),
        };
        let made = [&chains.ipv4, &chains.ipv6].into_iter().any(|it| *it == Ok(Kept::Made));
        if made && self.stands {
            log::info!("The KUBE- chains of iptables were gone; they are made again");
        }
        match problem(&chains) {
            None => (self.stands, self.told) = (true, String::new()),
            Some(Problem::Absent) => {
                // Whoever installs it later restarts the agent, as with upstream.
                self.next = None;
                self.complain("there is no iptables here: install it, or set it to false");
            }
            // One family is enough to watch.
            Some(Problem::Other(why)) => {
                self.stands = chains.ipv4.is_ok() || chains.ipv6.is_ok();
                self.complain(&why);
            }
        }
    }

    fn complain(&mut self, why: &str) {
        if self.told != why {
            log::warn!("The KUBE- chains (makeIPTablesUtilChains) are not kept: {why}");
            self.told = why.into();
        }
    }
}

enum Problem {
    Absent,
    Other(String),
}

fn problem(chains: &Chains) -> Option<Problem> {
    let absent = |it: &Result<Kept, Fault>| {
        it.as_ref().is_err_and(|fault| fault.kind == FaultKind::NotFound)
    };
    if absent(&chains.ipv4) && absent(&chains.ipv6) {
        return Some(Problem::Absent);
    }
    match (&chains.ipv4, &chains.ipv6) {
        (Ok(_), Ok(_)) => None,
        (Err(four), Err(six)) => {
            Some(Problem::Other(format!("IPv4: {}; IPv6: {}", four.message, six.message)))
        }
        (Err(four), Ok(_)) => Some(Problem::Other(format!("IPv4: {}", four.message))),
        (Ok(_), Err(six)) => Some(Problem::Other(format!("IPv6: {}", six.message))),
    }
}
