//! The cgroup tree, and the tables of iptables.

use super::disk::fault;
use std::collections::BTreeMap;
use steplet_core::effect::{KernelOp, Signals};
use steplet_core::event::{Chains, Fault, FaultKind, Kept, KernelReply};

#[derive(Debug, Default)]
pub struct Kernel {
    /// Values by file name, for each cgroup.
    cgroups: BTreeMap<String, BTreeMap<String, String>>,
    pub iptables: Iptables,
}

/// Of the chains it is enough to know whether they are there.
#[derive(Debug, Default)]
pub struct Iptables {
    pub absent: bool,
    pub stands: bool,
}

impl Iptables {
    pub fn keep(&mut self, _whole: bool) -> Chains {
        let absent = |program: &str| {
            Err(fault(FaultKind::NotFound, format!("cannot start {program}: no such file")))
        };
        if self.absent {
            return Chains { ipv4: absent("iptables"), ipv6: absent("ip6tables") };
        }
        let kept = if std::mem::replace(&mut self.stands, true) { Kept::There } else { Kept::Made };
        Chains { ipv4: Ok(kept), ipv6: Ok(kept) }
    }
}

impl Kernel {
    /// Does a kernel operation. `live` says whether processes are left in a cgroup: those were killed just
    /// now and have not gone yet.
    pub fn run(&mut self, op: &KernelOp, live: bool) -> Result<KernelReply, Fault> {
        match op {
            KernelOp::SetCgroups(cgroups) => {
                for cgroup in cgroups {
                    self.make(&cgroup.path);
                    let values = self.cgroups.entry(cgroup.path.clone()).or_default();
                    let set = cgroup.values.iter().map(|(k, v)| (k.to_string(), v.clone()));
                    values.extend(set);
                }
                Ok(KernelReply::Done)
            }
            KernelOp::RemoveCgroup { path } => {
                if live {
                    let message = format!("{path}: device or resource busy (os error 16)");
                    return Err(fault(FaultKind::Busy, message));
                }
                let below = format!("{path}/");
                self.cgroups.retain(|cgroup, _| cgroup != path && !cgroup.starts_with(&below));
                Ok(KernelReply::Done)
            }
            KernelOp::ListCgroups { path } => Ok(KernelReply::Names(self.children(path))),
            KernelOp::ReadSignals { .. } => Ok(KernelReply::Signals(Signals {
                memory_capacity: 4 << 30,
                memory_available: 2 << 30,
                nodefs_capacity: 32 << 30,
                nodefs_available: 16 << 30,
            })),
            KernelOp::Figures => Ok(KernelReply::Text(Default::default())),
        }
    }

    /// A cgroup and its parents, as runc makes them for a container when they are missing.
    pub fn make(&mut self, path: &str) {
        for (i, _) in path.match_indices('/') {
            self.cgroups.entry(path[..i].to_owned()).or_default();
        }
        self.cgroups.entry(path.to_owned()).or_default();
    }

    pub fn children(&self, path: &str) -> Vec<String> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        (self.cgroups.keys())
            .filter_map(|cgroup| cgroup.strip_prefix(&prefix))
            .filter(|rest| !rest.is_empty() && !rest.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    pub fn cgroups(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.cgroups.iter().map(|(path, values)| (path.as_str(), values))
    }

    pub fn reboot(&mut self) {
        self.iptables.stands = false;
        self.cgroups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steplet_core::effect::Cgroup;

    #[test]
    fn cgroups_are_made_with_parents_and_removed_with_children() {
        let mut kernel = Kernel::default();
        let cgroup = Cgroup {
            path: "kubepods/burstable/podu1".into(),
            values: vec![("cpu.weight".into(), "10".into())],
        };
        kernel.run(&KernelOp::SetCgroups(vec![cgroup]), false).expect("always");
        assert_eq!(kernel.children("kubepods"), ["burstable"]);
        assert_eq!(kernel.children("kubepods/burstable"), ["podu1"]);
        let remove = KernelOp::RemoveCgroup { path: "kubepods/burstable".into() };
        assert_eq!(kernel.run(&remove, true).map_err(|f| f.kind), Err(FaultKind::Busy));
        kernel.run(&remove, false).expect("nobody is left");
        assert_eq!(kernel.children("kubepods"), Vec::<String>::new());
        kernel.run(&remove, false).expect("gone already is fine");
    }
}
