//! The right to mount, for tests that do not run as root.

use std::process::Command;

/// Set in the process of a test that may mount.
const MAY_MOUNT: &str = "STEPLET_TEST_MAY_MOUNT";

/// Runs a test once more, by itself, where it may mount without being root and what it mounts is
/// gone with it: in user and mount namespaces of its own. Whether this is that process.
pub fn may_mount(test: &str) -> bool {
    if std::env::var_os(MAY_MOUNT).is_some() {
        return true;
    }
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().expect("a test knows itself"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MAY_MOUNT, "1")
        .output()
        .expect("this test needs unshare, of the package util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    let ran = said.contains("test result: ok. 1 passed");
    assert!(ran, "this test needs user namespaces (user.max_user_namespaces): {said}{wrong}");
    false
}
