//! The addresses of this node's pods, told to the runtime once for each change.
//!
//! Upstream: updatePodCIDR in pkg/kubelet/kubelet_network.go (v1.36).
//! Owns: what the runtime was told. Publishes: nothing. Hears: the end of each step.
//! Says: nothing. Asks: UpdateRuntimeConfig.
//! Never: tells what the runtime knows, or while an answer is waited for.

use crate::cx::Cx;
use crate::event::{Outcome, RpcError};
use crate::managers::cri;
use crate::time::{Mono, Span};
use alloc::string::String;
use serde::{Deserialize, Serialize};
use steplet_api::cri::{NetworkConfig, RuntimeConfig, UpdateRuntimeConfigRequest};

const REST: Span = Span::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodCidr {
    /// What the runtime has taken.
    known: String,
    /// What it is asked to take.
    asked: Option<String>,
    /// After a failure: not before then.
    rest_until: Option<Mono>,
    complained: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask;

impl PodCidr {
    /// At the end of a step, when all that it changed is known.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        let rests = self.rest_until.is_some_and(|until| until > cx.now.mono);
        if rests {
            return;
        }
        self.rest_until = None;
        if self.asked.is_some() || cx.facts.runtime_status.name().is_empty() {
            return;
        }
        let wanted = wanted(cx);
        // An address that a controller takes away stays with the runtime, as with upstream.
        if wanted.is_empty() || wanted == self.known {
            return;
        }
        let network = Some(NetworkConfig { pod_cidr: wanted.clone() });
        let request = UpdateRuntimeConfigRequest {
            runtime_config: Some(RuntimeConfig { network_config: network }),
        };
        let within = cx.facts.settings().runtime_request_timeout;
        cx.call(Ask, cri::call(cri::UPDATE_RUNTIME_CONFIG, &request, within));
        self.asked = Some(wanted);
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.rest_until
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, outcome: Outcome) {
        let Some(asked) = self.asked.take() else { return };
        let why = match outcome {
            Outcome::Rpc(Ok(_)) => {
                log::info!("The runtime knows the addresses of pods: {asked}");
                (self.known, self.complained) = (asked, false);
                return;
            }
            // A runtime that needs no telling.
            Outcome::Rpc(Err(error)) if error.code == RpcError::UNIMPLEMENTED => {
                self.known = asked;
                return;
            }
            Outcome::Rpc(Err(error)) => error.message,
            _ => "no answer".into(),
        };
        if !self.complained {
            log::warn!("The runtime does not take the addresses of pods {asked}: {why}");
        }
        self.complained = true;
        self.rest_until = Some(cx.now.mono + REST);
    }
}

/// Of the Node, as a controller gave them; of the configuration on a node that stands alone.
fn wanted(cx: &Cx<'_>) -> String {
    let settings = cx.facts.settings();
    if settings.api.is_none() {
        return settings.pod_cidr.clone();
    }
    let Some(node) = cx.facts.node.node() else { return String::new() };
    match node.spec.pod_cidrs.as_slice() {
        [] => node.spec.pod_cidr.clone().into(),
        all => all.join(","),
    }
}
