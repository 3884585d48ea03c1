//! The whole program as a process, against a runtime that has nothing: signals, locks, limits,
//! idleness.

use crate::world::runtime::{Answer, Runtime};
use crate::world::{SOON, Scratch};
use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use steplet_api::cri;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n\
    spec:\n  terminationGracePeriodSeconds: 1\n  containers: [{name: a, image: busybox:1}]\n  \
    volumes: [{name: host, hostPath: {path: /tmp, type: Directory}}]\n";

/// A runtime whose lists are empty and that cannot start anything.
pub fn empty_runtime(path: &str, _body: &[u8]) -> Answer {
    let message = |bytes: Vec<u8>| Answer::Message(Bytes::from(bytes));
    let condition = |kind: &str| cri::RuntimeCondition {
        r#type: kind.into(),
        status: true,
        ..cri::RuntimeCondition::default()
    };
    match path.rsplit('/').next() {
        Some("Version") => message(
            cri::VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "fake".into(),
                runtime_version: "1.0".into(),
                runtime_api_version: "v1".into(),
            }
            .encode_to_vec(),
        ),
        Some("Status") => {
            let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
            let status = Some(cri::RuntimeStatus { conditions });
            message(cri::StatusResponse { status, ..Default::default() }.encode_to_vec())
        }
        Some("ListPodSandbox" | "ListContainers") => message(Vec::new()),
        // Runtimes before containerd 2 have none: the configuration says where cgroups lie.
        Some("RuntimeConfig") => Answer::Status(12, "unknown method RuntimeConfig"),
        _ => Answer::Status(13, "this runtime can nothing"),
    }
}

struct Agent {
    scratch: Scratch,
    child: Option<Child>,
}

impl Agent {
    fn command(scratch: &Scratch, root: &str) -> Command {
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("web.yaml"), POD).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steplet"));
        command.arg("run").arg(at("web.yaml")).arg("--root-dir").arg(at(root));
        command.arg("--container-runtime-endpoint").arg(socket(scratch));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(name: &str, adjust: impl FnOnce(&mut Command)) -> Agent {
        let scratch = Scratch::new(name);
        let mut command = Agent::command(&scratch, "root");
        adjust(&mut command);
        let child = Some(command.spawn().expect("the program starts"));
        Agent { scratch, child }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().expect("it runs").id().cast_signed())
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid())).expect("it runs")
    }

    /// A number of `/proc/PID/status`.
    fn status(&self, name: &str) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
        line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Until it has relisted, so that it is up.
    fn up(self, runtime: &Runtime) -> Agent {
        let started = Instant::now();
        let lists = || {
            let calls = runtime.calls.lock().unwrap();
            calls.iter().filter(|path| path.ends_with("ListContainers")).count()
        };
        while lists() < 2 {
            assert!(started.elapsed() < SOON, "it never asked the runtime");
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    fn end(mut self) -> (i32, String) {
        let output = wait(self.child.take().expect("it runs"));
        (output.status.code().unwrap_or(-1), text(&output))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn socket(scratch: &Scratch) -> PathBuf {
    let dir = scratch.path().join("runtime");
    fs::create_dir_all(&dir).unwrap();
    dir.join("c.sock")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn wait(mut child: Child) -> Output {
    let started = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if started.elapsed() > SOON {
            child.kill().unwrap();
            panic!("it does not end: {}", text(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn it_runs_for_a_while_and_says_what_happens() {
    let agent = Agent::start("process_for", |command| {
        command.args(["--for", "2s"]);
    });
    let _runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    let (status, said) = agent.end();
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("fake 1.0: ready"), "{said}");
    // It is the runtime that refuses, or, without root, the kernel before it.
    assert!(said.contains("default/web-") && said.contains(" FailedCreatePod"), "{said}");
    assert!(said.contains(": gone"), "{said}");
}

#[test]
fn signals_end_it_cleanly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let agent = Agent::start("process_signal", |_| {});
        let runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
        let agent = agent.up(&runtime);
        kill(agent.pid(), signal).unwrap();
        let (status, said) = agent.end();
        assert_eq!(status, 0, "{signal}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_reader_of_the_log_that_stops_stops_nobody() {
    let (read, mut full) = std::io::pipe().unwrap();
    // A page less than there is room for.
    full.write_all(&[b'x'; 15 * 4096]).unwrap();
    let (output, probe) = (full.try_clone().unwrap(), full.try_clone().unwrap());
    let agent = Agent::start("process_full_pipe", |command| {
        command.args(["--v", "5"]).stdout(output).stderr(full);
    });
    let runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    let agent = agent.up(&runtime);
    let has_room = || {
        let mut asked = [PollFd::new(probe.as_fd(), PollFlags::POLLOUT)];
        poll(&mut asked, PollTimeout::ZERO).unwrap() > 0
    };
    let started = Instant::now();
    while has_room() {
        assert!(started.elapsed() < SOON, "it does not log enough");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    runtime.calls.lock().unwrap().clear();
    let agent = agent.up(&runtime);
    kill(agent.pid(), Signal::SIGTERM).unwrap();
    let (status, _) = agent.end();
    assert_eq!(status, 0);
    drop(read);
}

#[test]
fn one_thread_and_an_idle_loop() {
    let agent = Agent::start("process_idle", |_| {});
    let runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    let agent = agent.up(&runtime);
    std::thread::sleep(Duration::from_secs(1));
    let switches = |agent: &Agent| agent.status("voluntary_ctxt_switches");
    let before = switches(&agent);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(agent.status("Threads"), 1);
    let per_second = (switches(&agent) - before) / 3;
    assert!(per_second < 60, "woken {per_second} times a second");
}

#[test]
fn the_second_instance_says_so_and_ends() {
    let agent = Agent::start("process_second", |_| {});
    let runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    let agent = agent.up(&runtime);
    let second = |root| {
        let output = wait(Agent::command(&agent.scratch, root).spawn().unwrap());
        assert_eq!(output.status.code(), Some(1));
        text(&output)
    };
    let same_root = second("root");
    let want = format!("another agent (process {}) uses ", agent.pid());
    assert!(same_root.contains(&want), "{same_root}");
    let same_runtime = second("other-root");
    assert!(same_runtime.contains("another agent drives the runtime at "), "{same_runtime}");
}

#[test]
fn without_descriptors_it_goes_on_and_says_so() {
    let agent = Agent::start("process_descriptors", |command| {
        let inner = command.get_args().map(std::ffi::OsStr::to_os_string).collect::<Vec<_>>();
        *command = Command::new("sh");
        // As many as it holds without a connection: the runtime's socket is one too many.
        command.arg("-c").arg("ulimit -n 12; exec \"$0\" \"$@\"");
        command.arg(env!("CARGO_BIN_EXE_steplet")).args(inner).args(["--v", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    });
    let _runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    std::thread::sleep(Duration::from_secs(2));
    let before = agent.status("voluntary_ctxt_switches");
    std::thread::sleep(Duration::from_secs(2));
    let per_second = (agent.status("voluntary_ctxt_switches") - before) / 2;
    assert!(per_second < 100, "woken {per_second} times a second");
    kill(agent.pid(), Signal::SIGTERM).unwrap();
    let (status, said) = agent.end();
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("too many open files"), "{said}");
}

#[test]
fn no_runtime_and_no_file_are_explained() {
    let scratch = Scratch::new("process_wrong");
    let mut command = Agent::command(&scratch, "root");
    command.arg("/nonexistent/pod.yaml");
    let output = wait(command.spawn().unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("/nonexistent/pod.yaml: "), "{}", text(&output));
}

#[test]
fn helpers_end_with_a_killed_agent() {
    let mut agent = Agent::start("process_killed", |_| {});
    let _runtime = Runtime::start(&socket(&agent.scratch), empty_runtime);
    // The volume of the pod is looked at by one, which does not live long: it may have synced the tape after that and
    // be gone. The sandbox fails, and each new try looks at the volume again.
    let started = Instant::now();
    let list = format!("task/{}/children", agent.pid());
    let children = loop {
        let children = agent.proc(&list);
        if !children.trim().is_empty() {
            break children;
        }
        if started.elapsed() > SOON * 6 {
            kill(agent.pid(), Signal::SIGTERM).unwrap();
            panic!("there is no helper: {}", agent.end().1);
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut child = agent.child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let started = Instant::now();
    for pid in children.split_whitespace() {
        let cmdline = || fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        while cmdline().starts_with(b"steplet\0helper") {
            assert!(started.elapsed() < SOON, "helper {pid} lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
