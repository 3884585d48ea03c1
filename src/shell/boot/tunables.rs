//! What a node agent wants of its host before it starts: values of the kernel, and a root directory that shares mounts.
//!
//! Upstream: setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go, setupDataDirs in pkg/kubelet/kubelet.go
//! (v1.36).

use crate::shell::doors::reason;
use crate::shell::mounts;
use nix::mount::{MsFlags, mount};
use std::fs;
use std::io;
use std::path::Path;

/// `kernel.panic` is in seconds; the others count as they are.
const SYSCTLS: [(&str, i64); 6] = [
    ("vm.overcommit_memory", 1),
    ("vm.panic_on_oom", 0),
    ("kernel.panic", 10),
    ("kernel.panic_on_oops", 1),
    ("kernel.keys.root_maxkeys", 1_000_000),
    ("kernel.keys.root_maxbytes", 25_000_000),
];

/// Sets the kernel's values, or with `protectKernelDefaults` sees that they are set.
///
/// Errors: with `protect` what is wrong and the way out, for people. Otherwise a sandbox may refuse, and the agent goes
/// on with one warning.
pub fn sysctls(protect: bool) -> Result<(), String> {
    sysctls_in(Path::new("/proc/sys"), protect)
}

fn sysctls_in(root: &Path, protect: bool) -> Result<(), String> {
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for (key, wanted) in SYSCTLS {
        let path = root.join(key.replace('.', "/"));
        let read = fs::read_to_string(&path).map(|text| text.trim().to_owned());
        if read.as_ref().is_ok_and(|text| text.parse() == Ok(wanted)) {
            continue;
        }
        let is = match read {
            Ok(text) => format!("{key} is {text:?} and should be {wanted}"),
            Err(error) => {
                format!("{key} cannot be read ({}) and should be {wanted}", reason(&error))
            }
        };
        if protect {
            wrong.push((is, format!("{key}={wanted}")));
        } else if let Err(error) = fs::write(&path, wanted.to_string()) {
            refused.push(format!("{is}: {}", reason(&error)));
        }
    }
    if !refused.is_empty() {
        log::warn!(
            "Kernel values that cannot be set, with which a node is less safe: {}",
            refused.join("; ")
        );
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let (is, set): (Vec<_>, Vec<_>) = wrong.into_iter().unzip();
    Err(format!(
        "protectKernelDefaults is true, and {}: set them before the start (sysctl -w {}; a file in /etc/sysctl.d \
         keeps them over a reboot), or let the agent do it: protectKernelDefaults: false \
         (--protect-kernel-defaults=false)",
        is.join("; "),
        set.join(" ")
    ))
}

/// Makes mounts below the root directory show in containers that ask for it, and theirs here (`mountPropagation`):
/// that takes a mount that is shared. Where it cannot be made one, the agent goes on with a warning.
pub fn share(root: &Path) {
    if let Err(error) = try_share(root) {
        log::warn!(
            "{} cannot be made a shared mount, so containers with mountPropagation do not see new mounts: {}",
            root.display(),
            reason(&error)
        );
    }
}

fn try_share(root: &Path) -> io::Result<()> {
    let root = root.canonicalize()?;
    if mounts::is_shared(&root, &mounts::read()?) {
        return Ok(());
    }
    let none: Option<&str> = None;
    mount(Some(&root), &root, none, MsFlags::MS_BIND, none)?;
    mount(none, &root, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::doors::may_mount::may_mount;
    use crate::shell::scratch::Scratch;

    #[test]
    fn values_are_set_or_demanded() {
        let scratch = Scratch::new("sysctls");
        let root = scratch.path();
        for dir in ["vm", "kernel/keys"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(root.join("kernel/panic"), "0\n").unwrap();
        let why = sysctls_in(root, true).unwrap_err();
        assert!(why.contains("kernel.panic is \"0\" and should be 10"), "{why}");
        assert!(why.contains("vm.overcommit_memory cannot be read (no such file"), "{why}");
        assert!(why.contains("kernel.panic=10 "), "{why}");
        assert_eq!(fs::read_to_string(root.join("kernel/panic")).unwrap(), "0\n", "protected");
        assert_eq!(sysctls_in(root, false), Ok(()));
        assert_eq!(fs::read_to_string(root.join("kernel/panic")).unwrap(), "10");
        let keys = fs::read_to_string(root.join("kernel/keys/root_maxbytes")).unwrap();
        assert_eq!(keys, "25000000");
        assert_eq!(sysctls_in(root, true), Ok(()));
    }

    #[test]
    fn the_root_directory_shares_its_mounts() {
        if !may_mount("shell::boot::tunables::tests::the_root_directory_shares_its_mounts") {
            return;
        }
        let scratch = Scratch::new("share");
        let root = scratch.path().canonicalize().unwrap();
        let shared = || mounts::is_shared(&root, &mounts::read().unwrap());
        let many = || mounts::read().unwrap().len();
        let before = many();
        assert!(!shared(), "unshare makes all private");
        try_share(&root).unwrap();
        assert!(shared());
        try_share(&root).unwrap();
        assert_eq!(many(), before + 1, "once");
    }
}
