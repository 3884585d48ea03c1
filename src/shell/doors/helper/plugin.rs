//! Asks a credential plugin of client-go who we are. It blocks, so it runs in a helper process.
//!
//! Upstream: staging/src/k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go (v1.36).

use crate::shell::doors::api::ExecPlugin;
use crate::shell::doors::reason;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use steplet_core::event::{Fault, FaultKind};

const WITHIN: Duration = Duration::from_secs(60);
const BYTES_MAX: usize = 1 << 20;

/// What the plugin prints. Its complaints go where ours do.
///
/// Errors: it cannot be started, fails, prints more than a mebibyte, or does not end within a minute.
pub fn ask(plugin: &ExecPlugin) -> Result<Vec<u8>, Fault> {
    let of = |kind, what: String| Fault { kind, message: format!("{}: {what}", plugin.command) };
    let child = Command::new(&plugin.command)
        .args(&plugin.args)
        .envs(plugin.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", told(plugin))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| {
        let hint = match plugin.install_hint.as_str() {
            hint if error.kind() == ErrorKind::NotFound && !hint.is_empty() => format!("; {hint}"),
            _ => String::new(),
        };
        of(
            FaultKind::NotFound,
            format!("cannot start the credential plugin: {}{hint}", reason(&error)),
        )
    })?;
    let printed = read(&mut child, Instant::now() + WITHIN);
    if printed.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    let printed = printed.map_err(|(kind, what)| of(kind, what))?;
    match status {
        Ok(status) if status.success() => Ok(printed),
        Ok(status) => Err(of(FaultKind::Other, format!("the credential plugin failed: {status}"))),
        Err(error) => Err(of(FaultKind::Other, reason(&error))),
    }
}

/// ExecCredential as the plugin gets it.
fn told(plugin: &ExecPlugin) -> String {
    let mut spec = json!({ "interactive": false });
    if let Some(cluster) = &plugin.cluster {
        spec["cluster"] = serde_json::from_str(cluster).unwrap_or(Value::Null);
    }
    json!({ "kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec }).to_string()
}

fn read(child: &mut Child, until: Instant) -> Result<Vec<u8>, (FaultKind, String)> {
    let Some(output) = &mut child.stdout else { return Ok(Vec::new()) };
    let (mut printed, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let late = || (FaultKind::TimedOut, "the credential plugin did not end in time".to_owned());
        if left.is_zero() {
            return Err(late());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Err(late()),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(errno) => return Err((FaultKind::Other, errno.desc().to_owned())),
            Ok(_) => {}
        }
        match output.read(&mut buffer) {
            Ok(0) => return Ok(printed),
            Ok(n) => printed.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((FaultKind::Other, reason(&error))),
        }
        if printed.len() > BYTES_MAX {
            let what = format!("the credential plugin printed more than {BYTES_MAX} bytes");
            return Err((FaultKind::Invalid, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> ExecPlugin {
        ExecPlugin {
            command: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("REGION".into(), "north".into())],
            api_version: "client.authentication.k8s.io/v1".into(),
            cluster: Some(r#"{"server":"https://api:6443"}"#.into()),
            install_hint: "install it".into(),
        }
    }

    #[test]
    fn plugins_are_told_and_heard() {
        let said = ask(&plugin("echo $REGION $KUBERNETES_EXEC_INFO")).unwrap();
        let said = String::from_utf8(said).unwrap();
        let info = said.strip_prefix("north ").unwrap();
        let info: Value = serde_json::from_str(info).unwrap();
        let cluster = json!({"server": "https://api:6443"});
        let spec = json!({"interactive": false, "cluster": cluster});
        let version = "client.authentication.k8s.io/v1";
        assert_eq!(info, json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}));
    }

    #[test]
    fn what_goes_wrong_is_named() {
        let check = |script: &str, kind, want: &str| {
            let fault = ask(&plugin(script)).unwrap_err();
            assert!(fault.kind == kind && fault.message.contains(want), "{fault:?}");
        };
        check("exit 3", FaultKind::Other, "failed: exit status: 3");
        check("yes", FaultKind::Invalid, "more than 1048576 bytes");
        let missing = ExecPlugin { command: "/no/such/plugin".into(), ..plugin("") };
        let fault = ask(&missing).unwrap_err();
        assert!(fault.message.contains("no such file or directory; install it"), "{fault:?}");
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let late = read(&mut child, Instant::now() + Duration::from_millis(50));
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(late.unwrap_err().0, FaultKind::TimedOut);
    }
}
