//! `steplet run FILE...`: pods on this machine, in the foreground, until Ctrl-C.

use super::Failure;
use super::flags;
use super::node::{self, Node};
use super::simulate;
use super::table::Table;
use crate::cli::say;
use crate::shell::doors::listen::Listeners;
use crate::shell::doors::make_dirs;
use crate::shell::vault::Vault;
use crate::shell::{boot, log, terminal};
use lexopt::prelude::*;
use mio::net::UnixStream;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use steplet_core::settings::Settings;
use steplet_core::time::Span;

pub const HELP: &str = "\
Runs pods on this machine, in the foreground. No cluster is needed, only containerd or CRI-O.

    steplet run FILE...

Each FILE is a Pod manifest in YAML or JSON, or a directory of them. They are watched: edit one, and
its pod follows. Ctrl-C stops the pods and removes what they left.

  --for TIME       end by itself after this time: 20s, 5m, 1h30m
  --root-dir DIR   where the node keeps its state (default /var/lib/steplet)
  --container-runtime-endpoint SOCKET
                   the runtime's socket (default: containerd's or CRI-O's, whichever answers)
  --simulate       on a simulated node: no runtime is needed, and nothing really runs
  --v N            how much to log, 0 to 5 (default: warnings only)
  --tape-dir DIR, --tape-max BYTES
                   where the run is recorded, and how much of it is kept
                   (default ROOT/tapes, 64Mi); look at it with `steplet replay DIR`

Try it:  steplet run fixtures/manifests/hello.yaml
";

/// Where runtimes listen, the usual one first.
const SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];
const NO_RUNTIME: &str = "\
no container runtime answers. Looked at:
    /run/containerd/containerd.sock, /run/crio/crio.sock, /run/k3s/containerd/containerd.sock
On Debian or Ubuntu:  apt-get install containerd runc containernetworking-plugins
                      systemctl start containerd
Or name its socket:   --container-runtime-endpoint unix:///path/of/the/socket";

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
    refuse_beside_a_kubelet()?;
    let runtime = find_runtime(options.endpoint.as_deref())?;
    let root = options.root_dir.unwrap_or_else(|| "/var/lib/steplet".into());
    let held = node::hold(&root, &runtime)?;
    let manifests = root.join("run-manifests");
    link_manifests(&options.files, &manifests)?;
    let tape_dir = options.tape_dir.unwrap_or_else(|| root.join("tapes"));
    let tape_max = options.tape_max.unwrap_or(64 << 20);
    boot::raise_limits(1_000_000, -999);
    let mut table = Table::new();
    if terminal::size().is_some() {
        log::hold();
    }
    let node = Node {
        held,
        settings: settings(&root, &manifests)?,
        images: runtime.clone(),
        runtime,
        node_ip: String::new(),
        listeners: Listeners::default(),
        tape: (tape_max > 0).then_some((tape_dir, tape_max)),
        vault: Vault::default(),
        watcher: Some(Box::new(move |core, now| table.show(core, now))),
        stop_after: options.stop_after,
    };
    let status = node.run();
    eprint!("{}", log::take_held());
    Ok(status?)
}

fn simulated(options: &Options) -> Result<i32, Failure> {
    let Options { root_dir, endpoint, tape_dir, tape_max, .. } = options;
    let real = root_dir.is_some() || endpoint.is_some() || tape_dir.is_some() || tape_max.is_some();
    if real {
        let why = "a simulated node has no runtime, no directory and no tape: with --simulate \
                   leave out --container-runtime-endpoint, --root-dir, --tape-dir and --tape-max";
        return Err(Failure::Usage(why.into()));
    }
    Ok(simulate::run(&manifests(&options.files)?, options.stop_after)?)
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
            Long("simulate") => options.simulate = true,
            Short('v') | Long("v") => options.verbosity = Some(parser.value()?.parse()?),
            Long("tape-dir") => options.tape_dir = Some(parser.value()?.into()),
            Long("tape-max") => {
                let read = |text: &str| flags::tape_max(bytes(text)?);
                options.tape_max = Some(parser.value()?.parse_with(read)?);
            }
            Value(file) => options.files.push(absolute(file.into())),
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
    SOCKETS
        .iter()
        .find(|path| UnixStream::connect(path).is_ok())
        .map(PathBuf::from)
        .ok_or_else(|| NO_RUNTIME.to_owned())
}

/// Fills the node's own manifest directory with links, so that a change of a file is seen.
fn link_manifests(files: &[PathBuf], dir: &Path) -> Result<(), String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    make_dirs(dir, 0o750).map_err(|fault| fault.message)?;
    unlink_all(dir)?;
    for (name, file) in manifests(files)? {
        let link = dir.join(name);
        symlink(file, &link).map_err(|error| at(&link, error))?;
    }
    Ok(())
}

/// The manifests that the files and directories stand for, each with a name of its own.
fn manifests(files: &[PathBuf]) -> Result<BTreeMap<OsString, PathBuf>, String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut all = Vec::new();
    for file in files {
        if fs::metadata(file).map_err(|error| at(file, error))?.is_dir() {
            for entry in fs::read_dir(file).map_err(|error| at(file, error))? {
                all.push(entry.map_err(|error| at(file, error))?.path());
            }
        } else {
            all.push(file.clone());
        }
    }
    all.retain(|path| path.is_file() && !is_hidden(path));
    all.sort();
    let mut named = BTreeMap::new();
    for (index, file) in all.into_iter().enumerate() {
        if several_documents(&file) {
            return Err(format!(
                "{} holds several documents, and only the first would count: give each Pod a file",
                file.display()
            ));
        }
        let mut name = file.file_name().unwrap_or_default().to_owned();
        if named.contains_key(&name) {
            // Two directories can hold files of one name.
            name = format!("{index}-{}", name.display()).into();
        }
        named.insert(name, file);
    }
    if named.is_empty() { Err("there is no manifest among the files".into()) } else { Ok(named) }
}

/// Takes away the links of an earlier run. Whatever else lies there is somebody's work, and stays.
fn unlink_all(dir: &Path) -> Result<(), String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut links = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| at(dir, error))? {
        let path = entry.map_err(|error| at(dir, error))?.path();
        if !path.is_symlink() {
            return Err(format!(
                "{} is no link of an earlier run: move it away, or name another --root-dir",
                path.display()
            ));
        }
        links.push(path);
    }
    links.iter().try_for_each(|path| fs::remove_file(path).map_err(|error| at(path, error)))
}

/// Whether something other than comments comes after a line `---` that has something before it.
fn several_documents(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return false };
    let mut documents = 0;
    let mut fresh = true;
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            fresh = true;
        } else if fresh && !line.trim().is_empty() && !line.starts_with(['#', '%']) {
            documents += 1;
            fresh = false;
        }
    }
    documents > 1
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
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
        ..Settings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

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
    fn only_links_are_taken_away() {
        let scratch = Scratch::new("run-links");
        let dir = scratch.path().join("run-manifests");
        let (a, b) = (scratch.path().join("a.yaml"), scratch.path().join("b.yaml"));
        fs::write(&a, "kind: Pod\n").unwrap();
        fs::write(&b, "kind: Pod\n").unwrap();
        link_manifests(std::slice::from_ref(&a), &dir).unwrap();
        link_manifests(std::slice::from_ref(&b), &dir).unwrap();
        assert!(!dir.join("a.yaml").is_symlink() && a.is_file());
        assert_eq!(fs::read_link(dir.join("b.yaml")).unwrap(), b);
        fs::write(dir.join("real.yaml"), "kind: Pod\n").unwrap();
        let refused = link_manifests(&[a], &dir).unwrap_err();
        assert!(refused.contains("real.yaml"), "{refused}");
        assert!(dir.join("real.yaml").is_file() && dir.join("b.yaml").is_symlink());
    }

    #[test]
    fn documents_are_counted() {
        let path = std::env::temp_dir().join(format!("steplet-documents-{}", std::process::id()));
        let check = |text: &str, want| {
            fs::write(&path, text).unwrap();
            assert_eq!(several_documents(&path), want, "{text:?}");
        };
        check("kind: Pod\n", false);
        check("# a comment\n---\nkind: Pod\n---\n# nothing more\n", false);
        check("kind: Pod\n---\nkind: Pod\n", true);
        check("--- # first\na: 1\n--- # second\nb: 2\n", true);
        check("text: |\n  ---\n  more\n", false);
        fs::remove_file(&path).unwrap();
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
