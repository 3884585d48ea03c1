//! A runtime makes a parent cgroup that is not there by itself, without limits: then the pod has none.

use super::Judge;
use crate::doors::kernel::parent_path;
use crate::ledger::{Ask, Ledger};
use crate::trace::{Change, Moment};
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::{Call, Effect, KernelOp};
use steplet_core::event::{Event, Outcome};
use steplet_core::ids::Token;

#[derive(Default)]
pub struct Cgroups {
    asked: BTreeMap<Token, Vec<String>>,
    made: BTreeSet<String>,
}

impl Judge for Cgroups {
    fn promise(&self) -> &'static str {
        "a pod's cgroup is made before its sandbox"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.asked.clear();
    }

    fn change(&mut self, _: &Ledger, _: Moment, change: &Change) {
        if *change == Change::Rebooted {
            self.made.clear();
        }
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Done { token, outcome } = event
            && let Some(paths) = self.asked.remove(token)
            && matches!(outcome, Outcome::Kernel(Ok(_)))
        {
            self.made.extend(paths);
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, ask) in effects {
            match (effect, ask) {
                (Effect::Call { token, call: Call::Kernel(op) }, _) => match op {
                    KernelOp::SetCgroups(all) | KernelOp::SetSlices(all) => {
                        let paths = all.iter().map(|cgroup| cgroup.path.clone()).collect();
                        self.asked.insert(*token, paths);
                    }
                    KernelOp::RemoveCgroup { path } | KernelOp::RemoveSlice { path } => {
                        self.made.remove(path);
                    }
                    _ => {}
                },
                (_, Some(Ask::RunSandbox(config))) => {
                    let parent = config.linux.as_ref().map_or("", |linux| &linux.cgroup_parent);
                    if !self.made.contains(&parent_path(parent)) {
                        out.push(format!("a sandbox is to run in {parent}, which nobody made"));
                    }
                }
                _ => {}
            }
        }
    }
}
