//! The cgroup tree, systemd, which makes slices in it, and the tables of iptables.

use super::disk::fault;
use std::collections::BTreeMap;
use steplet_core::effect::{KernelOp, Signals};
use steplet_core::event::{Chains, Fault, FaultKind, Kept, KernelReply};

#[derive(Debug)]
pub struct Kernel {
    /// Values by file name, for each cgroup.
    cgroups: BTreeMap<String, BTreeMap<String, String>>,
    /// Nobody answers on the bus.
    pub systemd_gone: bool,
    pub iptables: Iptables,
    pub signals: Signals,
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel {
            cgroups: BTreeMap::new(),
            systemd_gone: false,
            iptables: Iptables::default(),
            signals: plenty(),
        }
    }
}

/// A machine that is short of nothing.
pub fn plenty() -> Signals {
    Signals {
        memory_capacity: 4 << 30,
        memory_available: 2 << 30,
        nodefs_capacity: 32 << 30,
        nodefs_available: 16 << 30,
        nodefs_inodes: 2_000_000,
        nodefs_inodes_free: 1_000_000,
        imagefs_capacity: 32 << 30,
        imagefs_available: 16 << 30,
        imagefs_inodes: 2_000_000,
        imagefs_inodes_free: 1_000_000,
        pids_max: 32_768,
        pids: 200,
    }
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

/// The path of a sandbox's parent, which may be the bare name of a slice: each dash of it is a level.
pub fn parent_path(parent: &str) -> String {
    let Some(name) = parent.strip_suffix(".slice") else {
        return parent.trim_start_matches('/').to_owned();
    };
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("{}.slice", &name[..end])).collect::<Vec<_>>().join("/")
}

impl Kernel {
    /// Does a kernel operation. `live` says whether processes are left in a cgroup: those were killed just
    /// now and have not gone yet.
    pub fn run(&mut self, op: &KernelOp, live: bool) -> Result<KernelReply, Fault> {
        self.systemd(op)?;
        match op {
            KernelOp::SetCgroups(cgroups) | KernelOp::SetSlices(cgroups) => {
                for cgroup in cgroups {
                    self.make(&cgroup.path);
                    let values = self.cgroups.entry(cgroup.path.clone()).or_default();
                    let set = cgroup.values.iter().map(|(k, v)| (k.to_string(), v.clone()));
                    values.extend(set);
                }
                Ok(KernelReply::Done)
            }
            KernelOp::RemoveCgroup { path } | KernelOp::RemoveSlice { path } => {
                if live {
                    let message = format!("{path}: device or resource busy (os error 16)");
                    return Err(fault(FaultKind::Busy, message));
                }
                let below = format!("{path}/");
                self.cgroups.retain(|cgroup, _| cgroup != path && !cgroup.starts_with(&below));
                Ok(KernelReply::Done)
            }
            KernelOp::ListCgroups { path } => Ok(KernelReply::Names(self.children(path))),
            KernelOp::ReadSignals { .. } => Ok(KernelReply::Signals(self.signals.clone())),
            KernelOp::Figures => Ok(KernelReply::Text(Default::default())),
            KernelOp::SetVerbosity(_) => Ok(KernelReply::Done),
        }
    }

    /// What systemd says to an operation on slices.
    fn systemd(&self, op: &KernelOp) -> Result<(), Fault> {
        let paths: Vec<&str> = match op {
            KernelOp::SetSlices(slices) => slices.iter().map(|slice| slice.path.as_str()).collect(),
            KernelOp::RemoveSlice { path } => vec![path],
            _ => return Ok(()),
        };
        if self.systemd_gone {
            let message = "systemd cannot be asked over D-Bus: connection refused";
            return Err(fault(FaultKind::Other, message));
        }
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        match paths.iter().find(|path| parent_path(&name(path)) != **path) {
            Some(path) => Err(fault(FaultKind::Invalid, format!("no slice can lie at {path}"))),
            None => Ok(()),
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
    fn slices_lie_where_their_names_say() {
        assert_eq!(parent_path("/kubepods/podu"), "kubepods/podu");
        assert_eq!(parent_path("a-b-c.slice"), "a.slice/a-b.slice/a-b-c.slice");
        let mut kernel = Kernel::default();
        let mut set = |path: &str| {
            let slice = Cgroup { path: path.into(), values: Vec::new() };
            kernel.run(&KernelOp::SetSlices(vec![slice]), false).map_err(|f| f.kind)
        };
        assert_eq!(set("a.slice/a-b.slice"), Ok(KernelReply::Done));
        assert_eq!(set("a-b.slice"), Err(FaultKind::Invalid));
        kernel.systemd_gone = true;
        let remove = KernelOp::RemoveSlice { path: "a.slice/a-b.slice".into() };
        assert_eq!(kernel.run(&remove, false).map_err(|f| f.kind), Err(FaultKind::Other));
        assert_eq!(kernel.children("a.slice"), ["a-b.slice"]);
    }

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
