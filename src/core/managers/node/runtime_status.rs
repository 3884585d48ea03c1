//! The runtime's health: its version once it answers, its conditions every five seconds. And once in a life, who makes
//! cgroups, for all that runs lies in them.
//!
//! Upstream: updateRuntimeUp in pkg/kubelet/kubelet.go, getCgroupDriverFromCRI in cmd/kubelet/app/server.go (v1.36).
//! Owns: the last answers. Publishes: `facts.runtime_status`.
//! Hears: Booted, RuntimeBack. Says: RuntimeNamed. Asks: Version, RuntimeConfig, Status.
//! Never: asks again before the last call was answered.

use crate::cx::Cx;
use crate::event::{Outcome, RpcError};
use crate::limits::RUNTIME_DOWN_AFTER;
use crate::managers::cri::{self, answer};
use crate::note::{Note, PodNote};
use crate::settings::CgroupDriver;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use steplet_api::cri as api;

const PERIOD: Span = Span::from_secs(5);
const HANDLERS_MOST: usize = 100;
/// The version that a kubelet asks with.
const API_VERSION: &str = "0.1.0";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    next: Option<Mono>,
    known: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Version,
    Config,
    Status,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeStatusFacts {
    name: Box<str>,
    version: Box<str>,
    /// None before the runtime was asked.
    cgroup_driver: Option<CgroupDriver>,
    /// None while the condition is true, or nothing is known yet.
    runtime_problem: Option<String>,
    network_problem: Option<String>,
    recursive_read_only: bool,
    /// By name; the default one has none.
    handlers: BTreeMap<Box<str>, Handler>,
    supplemental_groups_policy: Option<bool>,
    last_good: Option<Mono>,
    /// The last answer that it is ready.
    last_ready: Option<Mono>,
    last_error: Option<String>,
}

/// What a runtime handler can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    pub recursive_read_only: bool,
    pub user_namespaces: bool,
}

impl RuntimeStatusFacts {
    pub fn handlers(&self) -> &BTreeMap<Box<str>, Handler> {
        &self.handlers
    }

    /// None: the runtime does not say.
    pub fn supplemental_groups_policy(&self) -> Option<bool> {
        self.supplemental_groups_policy
    }

    /// `containerd`, empty before the first answer.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Who makes cgroups. None: the runtime has not been asked yet, so nothing may be made.
    pub fn cgroup_driver(&self) -> Option<CgroupDriver> {
        self.cgroup_driver
    }

    /// Why the runtime is not ready, by its own word or since it does not answer.
    pub fn problem(&self, now: Mono) -> Option<&str> {
        match self.last_good {
            None => Some("container runtime status check may not have completed yet"),
            Some(at) if now.since(at) > RUNTIME_DOWN_AFTER => Some("container runtime is down"),
            Some(_) => self.runtime_problem.as_deref(),
        }
    }

    /// Until when there was no `problem`: now, while there is none; None before the first good answer.
    pub fn well_until(&self, now: Mono) -> Option<Mono> {
        let counts = match self.runtime_problem {
            None => RUNTIME_DOWN_AFTER,
            Some(_) => Span::ZERO,
        };
        self.last_ready.map(|at| now.min(at + counts))
    }

    pub fn network_problem(&self) -> Option<&str> {
        self.network_problem.as_deref()
    }

    /// The default handler can make mounts read-only with all mounts below them.
    pub fn recursive_read_only(&self) -> bool {
        self.recursive_read_only
    }

    /// The error of the last call, None when it was answered.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

impl RuntimeStatus {
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>) {
        self.next = Some(cx.now.mono);
        self.on_tick(cx);
    }

    /// It answers other calls again: no need to wait.
    pub(crate) fn on_runtime_back(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_some() {
            self.next = Some(cx.now.mono);
            self.on_tick(cx);
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_none_or(|at| at > cx.now.mono) {
            return;
        }
        self.next = None;
        let within = cx.facts.settings().runtime_request_timeout;
        if self.known && cx.facts.runtime_status.cgroup_driver.is_none() {
            let body = api::RuntimeConfigRequest {};
            cx.call(Ask::Config, cri::call(cri::RUNTIME_CONFIG, &body, within));
        } else if self.known {
            let body = api::StatusRequest { verbose: false };
            cx.call(Ask::Status, cri::call(cri::STATUS, &body, within));
        } else {
            let body = api::VersionRequest { version: API_VERSION.into() };
            cx.call(Ask::Version, cri::call(cri::VERSION, &body, within));
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        let now = cx.now.mono;
        let facts = &mut cx.facts.runtime_status;
        let error = match then {
            Ask::Version => match answer::<api::VersionResponse>(outcome) {
                Ok(version) => {
                    facts.name = version.runtime_name.into();
                    facts.version = version.runtime_version.into();
                    log::info!("container runtime {} {}", facts.name, facts.version);
                    self.known = true;
                    self.next = Some(now);
                    facts.last_error = None;
                    return self.on_tick(cx);
                }
                Err(error) => Some(error),
            },
            Ask::Config => match driver(outcome, cx.facts.settings().cgroup_driver) {
                Ok(driver) => {
                    cx.facts.runtime_status.cgroup_driver = Some(driver);
                    self.next = Some(now);
                    cx.say(Note::Pod(PodNote::RuntimeNamed));
                    return self.on_tick(cx);
                }
                Err(error) => {
                    self.known = false;
                    Some(error)
                }
            },
            Ask::Status => match answer::<api::StatusResponse>(outcome) {
                Ok(status) => {
                    facts.last_good = Some(now);
                    facts.handlers = handlers(&status.runtime_handlers);
                    let default = facts.handlers.get("");
                    facts.recursive_read_only = default.is_some_and(|h| h.recursive_read_only);
                    let features = status.features.as_ref();
                    facts.supplemental_groups_policy =
                        features.map(|f| f.supplemental_groups_policy);
                    let status = status.status.unwrap_or_default();
                    facts.runtime_problem = problem(&status, "RuntimeReady");
                    facts.network_problem = problem(&status, "NetworkReady");
                    if facts.runtime_problem.is_none() {
                        facts.last_ready = Some(now);
                    }
                    None
                }
                // It may come back as another version.
                Err(error) => {
                    self.known = false;
                    Some(error)
                }
            },
        };
        let facts = &mut cx.facts.runtime_status;
        let text = error.map(|e| e.message);
        if text.is_some() && facts.last_error.is_none() {
            log::warn!("the container runtime does not answer: {}", text.as_deref().unwrap_or(""));
        }
        facts.last_error = text;
        self.next = Some(now + PERIOD);
    }
}

/// The runtime's word, or `configured` where it has none.
fn driver(outcome: Outcome, configured: CgroupDriver) -> Result<CgroupDriver, RpcError> {
    let told = match answer::<api::RuntimeConfigResponse>(outcome) {
        Ok(told) => {
            told.linux.and_then(|linux| api::CgroupDriver::try_from(linux.cgroup_driver).ok())
        }
        // containerd before 2.0.
        Err(error) if error.code == RpcError::UNIMPLEMENTED => None,
        Err(error) => return Err(error),
    };
    let driver = match told {
        Some(api::CgroupDriver::Systemd) => CgroupDriver::Systemd,
        Some(api::CgroupDriver::Cgroupfs) => CgroupDriver::Cgroupfs,
        None => configured,
    };
    if driver != configured {
        log::warn!(
            "cgroupDriver is {configured:?}, but the runtime says {driver:?}, and that goes before it"
        );
    }
    Ok(driver)
}

/// Bounded: a handler is a line of a configuration file.
fn handlers(told: &[api::RuntimeHandler]) -> BTreeMap<Box<str>, Handler> {
    let told = told.iter().take(HANDLERS_MOST);
    let told = told.map(|handler| {
        let features = handler.features.unwrap_or_default();
        let features = Handler {
            recursive_read_only: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        };
        (handler.name.as_str().into(), features)
    });
    told.collect()
}

/// What a condition says against it; a condition that is not there says nothing.
fn problem(status: &api::RuntimeStatus, kind: &str) -> Option<String> {
    let condition = status.conditions.iter().find(|c| c.r#type == kind)?;
    (!condition.status).then(|| {
        alloc::format!("{kind}=false reason:{} message:{}", condition.reason, condition.message)
    })
}
