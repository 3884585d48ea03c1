//! Pods, views and a node for the tables of tests, from short texts.

use crate::event::Machine;
use crate::managers::pods::view::{ContainerState, ContainerView, PodView, SandboxView};
use crate::settings::Settings;
use alloc::format;
use alloc::vec;
use steplet_api::pod::Pod;

/// A pod `p` in namespace `ns` with UID `u`, its spec from JSON.
pub(crate) fn pod(spec: &str) -> Pod {
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","generation":1}},"spec":{spec}}}"#
    );
    serde_json::from_str(&json).expect("the table has a good spec")
}

/// A view from words: `@1` is a ready sandbox of attempt 1, `!1` one that is not; `c=run`,
/// `c.2=exit:1`, `c=new` and `c=lost` are containers of the sandbox before them, by name and
/// attempt (0 unless told). Times grow by a second a word.
pub(crate) fn view(words: &str) -> PodView {
    let mut view = PodView { name: "p".into(), namespace: "ns".into(), ..PodView::default() };
    let mut sandbox = SandboxView::default();
    for (index, word) in words.split_whitespace().enumerate() {
        let at = (index as i64 + 1) * 1_000_000_000;
        if let Some(attempt) = word.strip_prefix(['@', '!']) {
            sandbox = SandboxView {
                id: format!("box{attempt}").into(),
                attempt: attempt.parse().expect("an attempt"),
                ready: word.starts_with('@'),
                created_at: at,
                ips: vec!["10.1.0.5".into()],
                host_network: false,
                from_manifest: false,
            };
            view.sandboxes.push(sandbox.clone());
            continue;
        }
        let (name, state) = word.split_once('=').expect("name=state");
        let (name, attempt) = name.split_once('.').unwrap_or((name, "0"));
        let (state, code) = match state.split_once(':') {
            Some((state, code)) => (state, code.parse().expect("an exit code")),
            None => (state, 0),
        };
        let state = match state {
            "run" => ContainerState::Running,
            "exit" => ContainerState::Exited,
            "new" => ContainerState::Created,
            "lost" => ContainerState::Unknown,
            other => panic!("no state {other}"),
        };
        let exited = state == ContainerState::Exited;
        let reason = if !exited {
            ""
        } else if code == 0 {
            "Completed"
        } else {
            "Error"
        };
        view.containers.push(ContainerView {
            id: format!("{name}{attempt}").into(),
            sandbox: sandbox.id.clone(),
            name: name.into(),
            attempt: attempt.parse().expect("an attempt"),
            state,
            image: "docker.io/library/busybox:1".into(),
            image_ref: "sha256:abc".into(),
            created_at: at,
            started_at: at,
            finished_at: if exited { at + 500_000_000 } else { 0 },
            exit_code: code,
            reason: reason.into(),
            ..ContainerView::default()
        });
    }
    view.sort();
    view
}

/// 4 CPUs, 1000 MiB, cgroup version 1.
pub(crate) fn machine() -> Machine {
    Machine {
        cpus: 4,
        memory_bytes: 1000 << 20,
        host_ips: ["192.0.2.10".into()].into(),
        cgroup_version: 1,
        controllers: ["cpu", "cpuset", "memory", "hugetlb", "pids"].map(Into::into).into(),
        hugepage_sizes: [2 << 20, 1 << 30].into(),
        hugepage_bytes: [100 << 20, 0].into(),
        ..Machine::default()
    }
}

/// Everything at its default.
pub(crate) fn settings() -> Settings {
    Settings { node_name: "n1".into(), hostname: "n1".into(), ..Settings::default() }
}
