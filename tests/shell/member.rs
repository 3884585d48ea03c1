//! The whole program as a member of a cluster: from a kubeconfig to a registered node with a lease.

use crate::process::empty_runtime;
use crate::world::api_server::{Answer, ApiServer, Asked, Authority};
use crate::world::runtime::Runtime;
use crate::world::{SOON, Scratch};
use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "s3cret-of-the-node";

const CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
    enableServer: false\nhealthzPort: 0\nfailSwapOn: false\nfailCgroupV1: false\n\
    cgroupsPerQOS: false\nenforceNodeAllocatable: []\n";

/// An API server that takes a node and its lease, and has nothing else.
fn answer(asked: &Asked) -> Answer {
    let made = |body: &[u8]| {
        let mut object: serde_json::Value = serde_json::from_slice(body).unwrap();
        object["metadata"]["uid"] = "u".into();
        object["metadata"]["resourceVersion"] = "2".into();
        Answer::Whole(201, &[], object.to_string().into())
    };
    let list = r#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#;
    match (asked.method.as_str(), asked.path.as_str()) {
        _ if asked.header("authorization") != format!("Bearer {TOKEN}") => {
            Answer::Whole(401, &[], Bytes::from_static(b"{}"))
        }
        ("POST", _) => made(&asked.body),
        ("GET", path) if path.contains("watch=") => Answer::Parts(Vec::new()),
        ("GET", path) if path.contains("resourceVersion") || path.contains("Selector=") => {
            Answer::ok(list)
        }
        _ => {
            let status = r#"{"kind":"Status","reason":"NotFound","code":404}"#;
            Answer::Whole(404, &[], Bytes::from_static(status.as_bytes()))
        }
    }
}

#[test]
fn a_kubeconfig_makes_it_a_node() {
    let scratch = Scratch::new("member");
    let at = |name: &str| scratch.path().join(name);
    let authority = Authority::new();
    let pair = authority.issue("localhost", 9);
    let server = ApiServer::start(&authority, &pair, &["h2"], answer);
    let _runtime = Runtime::start(&at("runtime.sock"), empty_runtime);
    fs::write(at("ca.crt"), &authority.pem).unwrap();
    fs::write(at("token"), TOKEN).unwrap();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://localhost:{}', \
         certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{tokenFile: token}}}}]\n",
        server.address.port()
    );
    fs::write(at("kubeconfig"), kubeconfig).unwrap();
    fs::write(at("config.yaml"), CONFIG).unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_steplet"))
        .arg("kubelet")
        .args(["--hostname-override", "node1", "--node-labels", "zone=north", "--v", "4"])
        .arg("--config")
        .arg(at("config.yaml"))
        .arg("--kubeconfig")
        .arg(at("kubeconfig"))
        .arg("--root-dir")
        .arg(at("root"))
        .arg(format!("--container-runtime-endpoint=unix://{}", at("runtime.sock").display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(at("log")).unwrap())
        .spawn()
        .expect("the program starts");
    let started = Instant::now();
    let find = |method: &str, path: &str| {
        let asked = server.asked.lock().unwrap();
        asked.iter().find(|a| a.method == method && a.path.starts_with(path)).cloned()
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    while find("POST", "/api/v1/nodes").is_none() || find("POST", leases).is_none() {
        let log = || fs::read_to_string(at("log")).unwrap_or_default();
        assert!(started.elapsed() < SOON && agent.try_wait().unwrap().is_none(), "{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(agent.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    let node = find("POST", "/api/v1/nodes").expect("seen above");
    let node: serde_json::Value = serde_json::from_slice(&node.body).unwrap();
    assert_eq!(node["metadata"]["name"], "node1");
    assert_eq!(node["metadata"]["labels"]["zone"], "north");
    let agent = find("GET", "/api/v1/").expect("it follows something");
    assert!(agent.header("user-agent").contains(" kubernetes/v1."), "{agent:?}");
    let found = with(TOKEN, scratch.path());
    assert_eq!(found, [at("token")], "the token is where it was, and nowhere else");
}

/// The files below a directory that hold this text.
fn with(text: &str, dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(with(text, &path)),
            kind if kind.is_file() => {
                let bytes = fs::read(&path).unwrap();
                if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}
