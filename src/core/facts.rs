//! The published facts: every manager may read them, only the file that owns a slice can change it.

use crate::calls::CallFacts;
use crate::event::Machine;
use crate::limits::{PLEG_UNHEALTHY_AFTER, SYNC_REST_MIN};
use crate::managers::containers::services::ServicesFacts;
use crate::managers::images::pull::PullFacts;
use crate::managers::node::certificates::CertificatesFacts;
use crate::managers::node::event_sender::EventSenderFacts;
use crate::managers::node::events::EventsFacts;
use crate::managers::node::node_object::NodeFacts;
use crate::managers::node::runtime_status::RuntimeStatusFacts;
use crate::managers::pods::housekeeping::HousekeepingFacts;
use crate::managers::pods::pleg::PlegFacts;
use crate::managers::pods::sources::SourcesFacts;
use crate::managers::pods::status::StatusFacts;
use crate::managers::pods::workers::WorkersFacts;
use crate::managers::volumes::VolumesFacts;
use crate::settings::{CgroupDriver, Settings};
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    pub boot: BootFacts,
    pub sources: SourcesFacts,
    pub workers: WorkersFacts,
    pub pleg: PlegFacts,
    pub housekeeping: HousekeepingFacts,
    pub statuses: StatusFacts,
    pub event_sender: EventSenderFacts,
    pub pulls: PullFacts,
    pub runtime_status: RuntimeStatusFacts,
    pub events: EventsFacts,
    pub node: NodeFacts,
    pub certificates: CertificatesFacts,
    pub services: ServicesFacts,
    pub volumes: VolumesFacts,
    pub calls: CallFacts,
}

/// Set once, by the Boot event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BootFacts(Option<Box<(Settings, Machine)>>);

impl BootFacts {
    pub(crate) fn set(&mut self, settings: Settings, machine: Machine) {
        self.0 = Some(Box::new((settings, machine)));
    }

    pub fn settings(&self) -> &Settings {
        &self.0.as_ref().expect("asked after Boot").0
    }

    pub fn machine(&self) -> &Machine {
        &self.0.as_ref().expect("asked after Boot").1
    }
}

impl Facts {
    pub fn settings(&self) -> &Settings {
        self.boot.settings()
    }

    pub fn machine(&self) -> &Machine {
        self.boot.machine()
    }

    /// Who makes cgroups: the runtime's word, else the configuration's.
    pub fn cgroup_driver(&self) -> CgroupDriver {
        self.runtime_status.cgroup_driver().unwrap_or(self.settings().cgroup_driver)
    }

    /// Why the agent cannot do its work, for `/healthz` and the watchdog; None while it can.
    ///
    /// Upstream: syncLoopHealthCheck in pkg/kubelet/server/server.go (v1.36). Its loop does not turn while the runtime
    /// is down or its pods could not be listed for three minutes; here it is the work on pods that rests. Before the
    /// first turn it is not judged.
    pub fn sync_loop_problem(&self, now: Mono) -> Option<&'static str> {
        let pleg = self.pleg.last_good()? + PLEG_UNHEALTHY_AFTER;
        let turned = self.runtime_status.well_until(now)?.min(pleg);
        let rest_max = self.settings().sync_frequency.times(2).max(SYNC_REST_MIN);
        (now.since(turned) > rest_max).then_some("sync Loop took longer than expected")
    }

    /// Why the node is not ready, in upstream's words (pkg/kubelet/runtime.go); None when it is.
    pub fn node_problem(&self, now: Mono) -> Option<String> {
        if let Some(problem) = self.runtime_status.problem(now) {
            return Some(problem.into());
        }
        if !self.pleg.healthy(now) {
            return Some(match self.pleg.last_good() {
                None => "PLEG is not healthy: pleg has yet to be successful".into(),
                Some(at) => {
                    let ago = now.since(at).secs();
                    let most = PLEG_UNHEALTHY_AFTER.secs() / 60;
                    format!(
                        "PLEG is not healthy: pleg was last seen active {ago}s ago; threshold is \
                         {most}m0s"
                    )
                }
            });
        }
        let network = self.runtime_status.network_problem();
        network.map(|problem| format!("container runtime network not ready: {problem}"))
    }
}
