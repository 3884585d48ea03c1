//! The cgroup filesystems: one tree on version 2, one for each group of controllers on version 1.
//!
//! Upstream: pkg/kubelet/cm/cgroup_manager_linux.go (v1.36). A slice is made by systemd, and what systemd does not know
//! of is then set here as in any other cgroup.
//! A hybrid machine counts as version 1: nothing is set in its unified tree, but runc
//! leaves cgroups there, which are removed with the others.

mod properties;
mod signals;
mod systemd;

use super::fault;
use crate::shell::mounts::{self, Mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use steplet_core::effect::{Cgroup, KernelOp};
use steplet_core::event::{Fault, FaultKind, KernelReply};

/// The controllers of version 1. Its mount options name others things too.
const V1: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];
/// What is handed down on version 2: the controllers that pods are limited by.
const V2: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];
const CHILDREN_MAX: usize = 10_000;

/// The cgroups of this machine.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    trees: Vec<Tree>,
    v2: bool,
    /// The unified tree of a hybrid machine.
    beside: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Tree {
    root: PathBuf,
    /// Controllers, or `name=systemd` for a tree without one.
    controllers: Vec<String>,
}

impl Kernel {
    pub fn new() -> Kernel {
        match mounts::read() {
            Ok(mounts) => Kernel::of(&mounts),
            Err(error) => {
                log::error!("Cannot read the mounts, so no cgroup is known: {error}");
                Kernel::default()
            }
        }
    }

    fn of(mounts: &[Mount]) -> Kernel {
        let mut trees: Vec<Tree> = Vec::new();
        for mount in mounts.iter().filter(|m| m.kind == "cgroup") {
            let named = |o: &String| V1.contains(&o.as_str()) || o.starts_with("name=");
            let controllers: Vec<_> = mount.options.iter().filter(|o| named(o)).cloned().collect();
            // One tree can be mounted in many places.
            if !controllers.is_empty() && !trees.iter().any(|t| t.controllers == controllers) {
                trees.push(Tree { root: mount.point.clone(), controllers });
            }
        }
        let unified = mounts.iter().find(|m| m.kind == "cgroup2");
        match unified {
            Some(mount) if trees.is_empty() => {
                let offered = read_words(&mount.point.join("cgroup.controllers"));
                let controllers = offered.unwrap_or_default();
                let trees = vec![Tree { root: mount.point.clone(), controllers }];
                Kernel { trees, v2: true, beside: None }
            }
            _ => Kernel { trees, v2: false, beside: unified.map(|mount| mount.point.clone()) },
        }
    }

    /// 1 or 2, and 0 where no cgroup is mounted.
    pub fn version(&self) -> u8 {
        if self.v2 { 2 } else { u8::from(!self.trees.is_empty()) }
    }

    /// Of the controllers that pods are limited by, those that this machine has.
    pub fn controllers(&self) -> Vec<String> {
        let has = |name: &&str| self.tree_of(name).is_some();
        V2.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect()
    }

    fn tree_of(&self, controller: &str) -> Option<&Tree> {
        self.trees.iter().find(|t| t.controllers.iter().any(|c| c == controller))
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        self.trees.iter().map(|tree| &tree.root).chain(&self.beside)
    }

    pub fn apply(&self, op: &KernelOp) -> Result<KernelReply, Fault> {
        match op {
            KernelOp::SetCgroups(cgroups) => {
                cgroups.iter().try_for_each(|cgroup| self.set(cgroup))?;
                Ok(KernelReply::Done)
            }
            KernelOp::RemoveCgroup { path } => self.remove(inside(path)?, || Ok(())),
            KernelOp::SetSlices(slices) => {
                let wanted: Vec<_> = slices.iter().filter(|slice| !self.stands(slice)).collect();
                systemd::set(&wanted, self.v2)?;
                wanted.into_iter().try_for_each(|slice| self.set(slice))?;
                Ok(KernelReply::Done)
            }
            KernelOp::RemoveSlice { path } => self.remove(inside(path)?, || systemd::stop(path)),
            KernelOp::ListCgroups { path } => self.list(inside(path)?),
            KernelOp::ReadSignals { root_dir, imagefs } => {
                Ok(KernelReply::Signals(signals::read(root_dir, imagefs)))
            }
            KernelOp::SetVerbosity(verbosity) => {
                crate::shell::log::set_verbosity(*verbosity);
                Ok(KernelReply::Done)
            }
            KernelOp::Figures => unreachable!("the reactor answers with its own figures"),
        }
    }

    /// Whether a write could make the kernel reclaim memory first, which takes time: a limit below
    /// what is in use.
    pub fn may_reclaim(&self, op: &KernelOp) -> bool {
        let KernelOp::SetCgroups(cgroups) = op else { return false };
        let Some(tree) = self.tree_of("memory") else { return false };
        let used = if self.v2 { "memory.current" } else { "memory.usage_in_bytes" };
        let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
        cgroups.iter().any(|cgroup| {
            let set = cgroup.values.iter().filter(|(file, _)| limits.contains(&&**file));
            // `max` and -1 are no limits.
            let lowest = set.filter_map(|(_, value)| value.parse::<u64>().ok()).min();
            lowest.is_some_and(|limit| {
                let used = fs::read_to_string(tree.root.join(&cgroup.path).join(used));
                used.is_ok_and(|used| used.trim().parse().is_ok_and(|used: u64| used > limit))
            })
        })
    }

    /// Whether an operation has to ask somebody who may not answer.
    pub fn asks_systemd(&self, op: &KernelOp) -> bool {
        match op {
            KernelOp::SetSlices(slices) => !slices.iter().all(|slice| self.stands(slice)),
            op => matches!(op, KernelOp::RemoveSlice { .. }),
        }
    }

    /// Whether a slice is there with these values, so that nothing is to be done.
    fn stands(&self, slice: &Cgroup) -> bool {
        let has = |file: &str, value: &str| {
            let Some(tree) = self.tree_of(file.split('.').next().unwrap_or_default()) else {
                return true;
            };
            let path = tree.root.join(&slice.path).join(file);
            fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        self.trees.iter().all(|tree| tree.root.join(&slice.path).is_dir())
            && slice.values.iter().all(|(file, value)| has(file, value))
    }

    fn set(&self, cgroup: &Cgroup) -> Result<(), Fault> {
        let path = inside(&cgroup.path)?;
        for tree in &self.trees {
            tree.make(path, self.v2)?;
        }
        for (file, value) in &cgroup.values {
            let controller = file.split('.').next().unwrap_or_default();
            let tree = match self.tree_of(controller) {
                Some(tree) => tree,
                None if self.v2 && controller == "cgroup" => &self.trees[0],
                None => {
                    log::debug!("No {controller} controller here: {file} is not set");
                    continue;
                }
            };
            write(&tree.root.join(path).join(&**file), value)?;
        }
        Ok(())
    }

    /// `let_go`: what its maker has to do before its directories can go.
    fn remove(
        &self,
        path: &Path,
        let_go: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<KernelReply, Fault> {
        self.roots().try_for_each(|root| kill_all(&root.join(path)))?;
        let_go()?;
        self.roots().try_for_each(|root| remove_dirs(&root.join(path)))?;
        Ok(KernelReply::Done)
    }

    fn list(&self, path: &Path) -> Result<KernelReply, Fault> {
        let mut names = BTreeSet::new();
        for root in self.roots() {
            names.extend(children(&root.join(path))?);
        }
        Ok(KernelReply::Names(names.into_iter().collect()))
    }
}

impl Tree {
    /// Makes a cgroup and those above it, so that its controllers can be used.
    fn make(&self, path: &Path, v2: bool) -> Result<(), Fault> {
        // There are a dozen trees of version 1, and mostly nothing to do. On version 2 others may
        // have taken back what was handed down.
        let whole = self.controllers.iter().all(|c| c != "cpuset");
        if !v2 && whole && self.root.join(path).is_dir() {
            return Ok(());
        }
        let mut dir = self.root.clone();
        for part in path.components() {
            if v2 {
                hand_down(&dir)?;
            }
            let parent = dir.clone();
            dir.push(part);
            match DirBuilder::new().mode(0o755).create(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at("make", &dir, &error)),
            }
            if !v2 && self.controllers.iter().any(|c| c == "cpuset") {
                inherit(&parent, &dir, "cpuset.cpus")?;
                inherit(&parent, &dir, "cpuset.mems")?;
            }
        }
        Ok(())
    }
}

/// Lets the children of a version 2 cgroup use the controllers that it has itself.
fn hand_down(dir: &Path) -> Result<(), Fault> {
    let read = |name: &str| {
        let path = dir.join(name);
        read_words(&path).map_err(|error| at("read", &path, &error))
    };
    let (has, gives) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
    let missing = |name: &&&str| {
        let is = |list: &[String]| list.iter().any(|c| c == **name);
        is(&has) && !is(&gives)
    };
    let words: Vec<_> = V2.iter().filter(missing).map(|name| format!("+{name}")).collect();
    if words.is_empty() {
        Ok(())
    } else {
        write(&dir.join("cgroup.subtree_control"), &words.join(" "))
    }
}

/// A new version 1 cpuset has no CPUs, and nothing can run in it until it is given some.
fn inherit(parent: &Path, dir: &Path, file: &str) -> Result<(), Fault> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| at("read", path, &error));
    let own = dir.join(file);
    if read(&own)?.trim().is_empty() {
        write(&own, read(&parent.join(file))?.trim())?;
    }
    Ok(())
}

/// Kills every process in a cgroup and below it; a missing cgroup is fine.
fn kill_all(dir: &Path) -> Result<(), Fault> {
    for name in children(dir)? {
        kill_all(&dir.join(name))?;
    }
    let procs = dir.join("cgroup.procs");
    let pids = match read_words(&procs) {
        Ok(pids) => pids,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(at("read", &procs, &error)),
    };
    for pid in pids.iter().filter_map(|pid| pid.parse().ok()) {
        // 0 stands for a process of another pid namespace, which cannot be named.
        if pid > 0 && pid != std::process::id().cast_signed() {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    Ok(())
}

fn remove_dirs(dir: &Path) -> Result<(), Fault> {
    for name in children(dir)? {
        remove_dirs(&dir.join(name))?;
    }
    match fs::remove_dir(dir) {
        Err(error) if !is_gone(&error) => Err(at("remove", dir, &error)),
        _ => Ok(()),
    }
}

fn children(dir: &Path) -> Result<Vec<String>, Fault> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(at("read", dir, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if names.len() == CHILDREN_MAX {
            log::warn!("{} has over {CHILDREN_MAX} cgroups: the rest is left out", dir.display());
            break;
        }
        let entry = entry.map_err(|error| at("read", dir, &error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// A cgroup that is removed while it is read shows as `ENODEV`.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn write(path: &Path, value: &str) -> Result<(), Fault> {
    // One write: the kernel takes each as a whole value.
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        let n = file.write(value.as_bytes())?;
        if n == value.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    });
    written.map_err(|error| {
        fault(format_args!("cannot write {value:?} to {}", path.display()), &error)
    })
}

fn read_words(path: &Path) -> io::Result<Vec<String>> {
    Ok(fs::read_to_string(path)?.split_whitespace().map(str::to_owned).collect())
}

fn at(verb: &str, path: &Path, error: &io::Error) -> Fault {
    fault(format_args!("cannot {verb} {}", path.display()), error)
}

/// A path of the core as one below the root, which it may not leave.
fn inside(path: &str) -> Result<&Path, Fault> {
    let inner = Path::new(path);
    let plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !path.is_empty() {
        return Ok(inner);
    }
    Err(Fault {
        kind: FaultKind::Invalid,
        message: format!("{path:?} is no cgroup below the root"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    fn mount(point: &str, kind: &str, options: &str) -> Mount {
        let options = options.split(',').map(str::to_owned).collect();
        Mount { point: point.into(), kind: kind.into(), options, shared: false }
    }

    #[test]
    fn versions_and_trees() {
        let hybrid = [
            mount("/sys/fs/cgroup", "tmpfs", "rw,mode=755"),
            mount("/sys/fs/cgroup/unified", "cgroup2", "rw"),
            mount("/sys/fs/cgroup/systemd", "cgroup", "rw,xattr,name=systemd"),
            mount("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"),
            mount("/elsewhere", "cgroup", "rw,cpu,cpuacct"),
            mount("/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
        ];
        let kernel = Kernel::of(&hybrid);
        assert_eq!(kernel.version(), 1);
        assert_eq!(kernel.controllers(), ["cpu", "memory"]);
        let roots: Vec<_> = kernel.trees.iter().map(|t| t.root.to_str().unwrap()).collect();
        let want =
            ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"];
        assert_eq!(roots, want);
        assert_eq!(Kernel::of(&[mount("/sys/fs/cgroup", "cgroup2", "rw")]).version(), 2);
        assert_eq!(Kernel::of(&[]).version(), 0);
    }

    #[test]
    fn paths_stay_below_the_root() {
        let check = |path, good| assert_eq!(inside(path).is_ok(), good, "{path}");
        check("kubepods", true);
        check("kubepods/burstable/pod1", true);
        check("", false);
        check("/kubepods", false);
        check("kubepods/../..", false);
        check("./kubepods", false);
    }

    /// A tree of plain directories: what the kernel would add is added by the test.
    fn v2(scratch: &Scratch) -> Kernel {
        let root = scratch.path();
        for dir in ["", "kubepods", "kubepods/pod1"] {
            fs::create_dir_all(root.join(dir)).unwrap();
            fs::write(root.join(dir).join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
            fs::write(root.join(dir).join("cgroup.subtree_control"), "memory").unwrap();
            fs::write(root.join(dir).join("memory.max"), "max").unwrap();
        }
        Kernel::of(&[mount(root.to_str().unwrap(), "cgroup2", "rw")])
    }

    #[test]
    fn values_and_controllers_on_version_2() {
        let scratch = Scratch::new("cgroup2");
        let kernel = v2(&scratch);
        let set = |values: &[(&'static str, &str)]| {
            let values = values.iter().map(|(f, v)| ((*f).into(), (*v).to_owned())).collect();
            let cgroup = Cgroup { path: "kubepods/pod1".into(), values };
            kernel.apply(&KernelOp::SetCgroups(vec![cgroup]))
        };
        // This machine has no hugetlb: skipped.
        assert_eq!(
            set(&[("memory.max", "104857600"), ("hugetlb.2MB.max", "0")]),
            Ok(KernelReply::Done)
        );
        let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap();
        assert_eq!(read("kubepods/pod1/memory.max"), "104857600");
        assert_eq!(read("cgroup.subtree_control"), "+cpu +cpuset");
        assert_eq!(read("kubepods/cgroup.subtree_control"), "+cpu +cpuset");
        assert_eq!(read("kubepods/pod1/cgroup.subtree_control"), "memory");
        let fault = set(&[("memory.high", "1")]).unwrap_err();
        let path = scratch.path().join("kubepods/pod1/memory.high");
        let want = format!("cannot write \"1\" to {}: no such file or directory", path.display());
        assert_eq!((fault.kind, fault.message), (FaultKind::NotFound, want));
    }

    /// The cgroups themselves are played by a directory: real ones need root, and tests/e2e has them.
    #[test]
    fn a_cgroup_is_listed_and_removed_with_what_runs_in_it() {
        let scratch = Scratch::new("cgroups");
        let kernel = Kernel::of(&[mount(scratch.path().to_str().unwrap(), "cgroup2", "rw")]);
        let inner = scratch.path().join("top/inner");
        fs::create_dir_all(&inner).unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let procs = inner.join("cgroup.procs");
        // 0 is a process that this one cannot see, and the agent itself is never killed.
        let own = std::process::id();
        fs::write(&procs, format!("0\n{own}\n{}\n", sleeper.id())).unwrap();
        let apply = |op| kernel.apply(&op);
        let list = || apply(KernelOp::ListCgroups { path: "top".into() });
        let remove = || apply(KernelOp::RemoveCgroup { path: "top".into() });
        assert_eq!(list(), Ok(KernelReply::Names(vec!["inner".into()])));
        // The kernel lets go of a dead process a moment after its end.
        assert_eq!(remove().unwrap_err().kind, FaultKind::Busy);
        assert!(!sleeper.wait().unwrap().success(), "it was not killed");
        fs::remove_file(&procs).unwrap();
        assert_eq!(remove(), Ok(KernelReply::Done));
        assert!(!inner.exists());
        assert_eq!(remove(), Ok(KernelReply::Done), "gone already is fine");
        assert_eq!(list(), Ok(KernelReply::Names(vec![])));
    }
}
