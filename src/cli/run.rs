//! `steplet run FILE...`: pods on this machine, in the foreground, until Ctrl-C.

use super::columns::WIDTH;
use super::manifests::Manifests;
use super::node::{self, Node};
use super::table::{Manner, Table};
use super::{Failure, columns, flags, say, simulate};
use crate::shell::doors::listen::Listeners;
use crate::shell::vault::Vault;
use crate::shell::{boot, log};
use lexopt::prelude::*;
use mio::net::UnixStream;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use steplet_core::settings::Settings;
use steplet_core::time::Span;

pub const HELP: &str = "\
Runs pods on this machine, in the foreground. No cluster is needed, only containerd or CRI-O.

    steplet run FILE...

Each FILE is a Pod manifest in YAML or JSON, or a directory of them. They are watched: edit one, and
its pod follows. Ctrl-C stops the pods and removes what they left. What a container prints is in
ROOT/logs/NAMESPACE_POD_UID/CONTAINER/ATTEMPT.log as long as its pod is there.

  --logs           print plain lines instead of the table, and what the containers print among them
  --for TIME       end by itself after this time: 20s, 5m, 1h30m
  --root-dir DIR   where the node keeps its state (default /var/lib/steplet)
  --container-runtime-endpoint SOCKET
                   the runtime's socket (default: containerd's or CRI-O's, whichever answers)
  --simulate       on a simulated node: no runtime is needed, and nothing really runs; every image
                   exists there, and no path of the host. It leaves no tape, and edits are not seen
  --v N            how much to log: 0 little, 4 much, 10 all (default: warnings only)
  --tape-dir DIR, --tape-max BYTES
                   where the run is recorded, and how much of it is kept
                   (default ROOT/tapes, 64Mi; 0: no tape); `steplet replay DIR` has it again

ROOT is the directory of --root-dir. The exit status is 0 when the pods were run and stopped, 2 when
the command line is wrong, and 1 after any other trouble.

Try it:  steplet run fixtures/manifests/hello.yaml
";

/// Where runtimes listen, the usual one first.
const SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];
const HOW_TO_GET_ONE: &str = "\
On Debian or Ubuntu:  apt-get install containerd runc containernetworking-plugins
                      systemctl start containerd
Or name its socket:   --container-runtime-endpoint unix:///path/of/the/socket";

fn no_runtime(looked_at: &str) -> String {
    format!("no container runtime answers. Looked at:\n    {looked_at}\n{HOW_TO_GET_ONE}")
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    files: Vec<PathBuf>,
    root_dir: Option<PathBuf>,
    endpoint: Option<String>,
    stop_after: Option<Duration>,
    verbosity: Option<u32>,
    tape_dir: Option<PathBuf>,
    tape_max: Option<u64>,
    simulate: bool,
    logs: bool,
    help: bool,
}

/// Returns the exit status. Errors: a sentence for people.
pub fn main(args: impl Iterator<Item = OsString>) -> Result<i32, Failure> {
    let usage = |why| Failure::Usage(format!("{why}; see `steplet run --help`"));
    let options = parse(args).map_err(|error| usage(error.to_string()))?;
    if options.help {
        say(HELP);
        return Ok(0);
    }
    match options.verbosity {
        Some(verbosity) => log::start(log::Format::Text, verbosity, Vec::new()),
        None => log::start_quiet(),
    }
    if options.files.is_empty() {
        return Err(usage("which pods? `steplet run FILE...`".into()));
    }
    if options.simulate {
        return simulated(&options);
    }
    let manifests = Manifests::find(&options.files)?;
    refuse_beside_a_kubelet()?;
    let runtime = find_runtime(options.endpoint.as_deref())?;
    let root = options.root_dir.unwrap_or_else(|| "/var/lib/steplet".into());
    let held = node::hold(&root, &runtime)?;
    let links = root.join("run-manifests");
    manifests.link(&links)?;
    let tape_max = options.tape_max.unwrap_or(64 << 20);
    let tape_dir = options.tape_dir.unwrap_or_else(|| root.join("tapes"));
    let tape = (tape_max > 0).then_some((tape_dir, tape_max));
    let end = tape.as_ref().map(|(dir, _)| tape_line(dir));
    boot::raise_limits(1_000_000, -999);
    let hint = no_runtime(&runtime.display().to_string());
    let mut table = Table::new(Manner {
        names: manifests.names(&links),
        hint,
        output: options.logs,
        ..Manner::default()
    });
    if table.is_drawn() {
        log::hold();
    }
    let node = Node {
        offline_key: String::new(),
        held,
        settings: settings(&root, &links)?,
        images: runtime.clone(),
        runtime,
        node_ip: String::new(),
        listeners: Listeners::default(),
        api: None,
        tape,
        vault: Vault::default(),
        watcher: Some(Box::new(move |core, now| table.show(core, now))),
        stop_after: options.stop_after,
    };
    let status = node.run();
    log::show_held();
    end.into_iter().for_each(say);
    Ok(status?)
}

/// Where the run can be found again, and how.
fn tape_line(dir: &Path) -> String {
    let dir = dir.display();
    format!("tape: {dir} (steplet replay {dir})\n")
}

fn simulated(options: &Options) -> Result<i32, Failure> {
    let Options { root_dir, endpoint, tape_dir, tape_max, .. } = options;
    let real = root_dir.is_some() || endpoint.is_some() || tape_dir.is_some() || tape_max.is_some();
    if real || options.logs {
        let why = "a simulated node has no runtime, no directory, no tape and no output: with \
                   --simulate leave out --container-runtime-endpoint, --root-dir, --tape-dir, \
                   --tape-max and --logs";
        return Err(Failure::Usage(why.into()));
    }
    Ok(simulate::run(&Manifests::find(&options.files)?, options.stop_after)?)
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Options, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => options.help = true,
            Long("for") => {
                options.stop_after = Some(parser.value()?.parse_with(duration)?);
            }
            Long("root-dir") => options.root_dir = Some(absolute(parser.value()?.into())),
            Long("container-runtime-endpoint") => {
                options.endpoint = Some(parser.value()?.string()?);
            }
            Long("logs") => options.logs = true,
            Long("simulate") => options.simulate = true,
            Short('v') | Long("v") => options.verbosity = Some(parser.value()?.parse()?),
            Long("tape-dir") => options.tape_dir = Some(absolute(parser.value()?.into())),
            Long("tape-max") => {
                let read = |text: &str| flags::tape_max(bytes(text)?);
                options.tape_max = Some(parser.value()?.parse_with(read)?);
            }
            Value(file) => options.files.push(file.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// `1h30m`, `20s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time such as 20s or 5m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        total += Duration::from_millis(number.saturating_mul(ms));
        rest = after;
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

/// `64Mi`, `1Gi`, `1000000`.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("", 0)];
    let split = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = split.expect("the empty unit fits");
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no size such as 64Mi"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

/// Two agents on one machine take each other's pods for leftovers.
fn refuse_beside_a_kubelet() -> Result<(), String> {
    if let Some((pid, name)) = boot::other_kubelet() {
        return Err(format!(
            "{name} runs on this machine (process {pid}), and the pods are its: stop it first, or \
             put the manifests into its staticPodPath"
        ));
    }
    let port = SocketAddr::from((Ipv4Addr::LOCALHOST, 10250));
    if TcpStream::connect_timeout(&port, Duration::from_secs(1)).is_ok() {
        return Err(
            "somebody listens on port 10250, so a node agent runs here already: stop it first"
                .into(),
        );
    }
    Ok(())
}

fn find_runtime(endpoint: Option<&str>) -> Result<PathBuf, String> {
    if let Some(endpoint) = endpoint {
        return boot::socket_path(endpoint);
    }
    // Without waiting: a hung runtime's queue of connections may be full.
    SOCKETS.iter().find(|path| UnixStream::connect(path).is_ok()).map(PathBuf::from).ok_or_else(
        || {
            let mut looked_at = SOCKETS.join(", ");
            if looked_at.len() > WIDTH - 4 {
                looked_at = columns::wrap(looked_at.split(' '), WIDTH - 4).join("\n    ");
            }
            no_runtime(&looked_at)
        },
    )
}

fn settings(root: &Path, manifests: &Path) -> Result<Settings, String> {
    let hostname = boot::hostname()?;
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{} is not UTF-8", path.display())),
    };
    Ok(Settings {
        node_name: hostname.trim().to_ascii_lowercase(),
        hostname,
        root_dir: text(root)?,
        pod_logs_dir: text(&root.join("logs"))?,
        container_links_dir: String::new(),
        static_pod_path: text(manifests)?,
        // The links do not tell when what they name changes.
        file_check: Span::from_secs(2),
        stop_pods_on_exit: true,
        // A guest on the machine leaves it as it is.
        iptables_chains: false,
        ..Settings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let check = |text, want: Option<u64>| {
            assert_eq!(duration(text).ok(), want.map(Duration::from_millis), "{text}");
        };
        check("20s", Some(20_000));
        check("1h30m", Some(5_400_000));
        check("500ms", Some(500));
        check("20", None);
        check("", None);
        check("s", None);
        check("1d", None);
        check("99999999999999999999s", None);
        let check = |text, want| assert_eq!(bytes(text).ok(), want, "{text}");
        check("64Mi", Some(64 << 20));
        check("1Gi", Some(1 << 30));
        check("1000", Some(1000));
        check("Mi", None);
        check("-1", None);
        check("99999999999Gi", None);
    }

    #[test]
    fn options() {
        let parse = |args: &[&str]| parse(args.iter().map(OsString::from));
        let options = parse(&["/a.yaml", "--for", "20s", "--v=3", "/b.yaml"]).unwrap();
        assert_eq!(options.files, [PathBuf::from("/a.yaml"), "/b.yaml".into()]);
        assert_eq!(options.stop_after, Some(Duration::from_secs(20)));
        assert_eq!(options.verbosity, Some(3));
        let simulated = super::simulated;
        let both = parse(&["/a.yaml", "--simulate", "--root-dir=/r"]).unwrap();
        assert!(
            both.simulate
                && matches!(simulated(&both),
            Err(Failure::Usage(why)) if why.contains("--root-dir"))
        );
        assert!(parse(&["--nonsense"]).is_err());
        assert!(parse(&["--for", "soon"]).is_err());
    }
}
