//! The arguments, read as Go's pflag reads them: `--flag=value`, `--flag value`, `--switch`,
//! `--switch=false`, `-v 4`, underscores for dashes.

use super::problem::{Place, Problem};
use super::table::{FLAGS, Flag, GONE, Kind, To};
use super::{KUBERNETES_VERSION, KubeletFlags, value};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use steplet_api::config::{GoDuration, alike};
use steplet_api::quantity::Quantity;

/// What was asked for instead of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Help,
    Version,
}

/// A command line that was understood.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    pub flags: KubeletFlags,
    asked: Option<Asked>,
    /// What is wrong with it, all of it.
    pub(super) problems: Vec<Problem>,
    /// Flags that mirror configuration fields: the name, the field's path, the value.
    pub(super) fields: Vec<(&'static str, &'static str, Value)>,
    /// Names of deprecated flags, and of those that have no effect yet, as they were used.
    pub(super) deprecated: Vec<&'static str>,
    pub(super) not_yet: Vec<&'static str>,
}

/// Reads the arguments behind the program's name. What is wrong with them is told by `settings`,
/// together with what is wrong with the files.
pub fn parse(args: impl IntoIterator<Item = OsString, IntoIter: 'static>) -> CommandLine {
    let mut problems = Vec::new();
    let uses = collect(args, &mut problems);
    let mut line = CommandLine::default();
    for (index, texts) in &uses {
        let flag = &FLAGS[*index];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if let Err(what) = line.take(flag, &texts) {
            problems.push(Problem::of_flag(flag.name, what));
        }
    }
    line.check(&mut problems);
    line.problems = problems;
    line
}

/// The uses of each flag, by its row in the table.
fn collect(
    args: impl IntoIterator<Item = OsString, IntoIter: 'static>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<usize, Vec<String>> {
    use lexopt::Arg::{Long, Short, Value};
    let mut uses: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut parser = lexopt::Parser::from_args(args);
    let mut commands = 0;
    loop {
        let name = match parser.next() {
            Ok(None) => return uses,
            Ok(Some(Long(name))) => name.replace('_', "-"),
            Ok(Some(Short(letter))) => letter.to_string(),
            Ok(Some(Value(text))) => {
                if commands == 0 {
                    let what = format!("unknown command {}", text.display());
                    problems.push(Problem::new(Place::Nowhere, what));
                }
                commands += 1;
                continue;
            }
            Err(error) => {
                problems.push(Problem::new(Place::Nowhere, error.to_string()));
                return uses;
            }
        };
        let Some(index) = FLAGS.iter().position(|flag| called(flag, &name)) else {
            problems.push(unknown(&name));
            // Its value, when there is one, cannot be told from the next argument.
            parser.optional_value();
            continue;
        };
        let text = match FLAGS[index].kind {
            Kind::Bool | Kind::Version => parser.optional_value().unwrap_or("true".into()),
            _ => match parser.value() {
                Ok(text) => text,
                Err(_) => {
                    problems.push(Problem::of_flag(&name, "needs a value"));
                    continue;
                }
            },
        };
        match text.into_string() {
            Ok(text) => uses.entry(index).or_default().push(text),
            Err(_) => problems.push(Problem::of_flag(&name, "must be UTF-8")),
        }
    }
}

fn called(flag: &Flag, name: &str) -> bool {
    flag.name == name || flag.short.is_some_and(|short| name == short.to_string())
}

fn unknown(name: &str) -> Problem {
    if let Some((_, instead)) = GONE.iter().find(|(gone, _)| *gone == name) {
        return Problem::of_flag(name, format!("is no flag any more; {instead}"));
    }
    let names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).filter(|n| n.len() > 1).collect();
    match alike(name, &names) {
        Some(near) => Problem::of_flag(name, format!("unknown flag; is it --{near}?")),
        None => Problem::of_flag(name, "unknown flag; --help shows all"),
    }
}

impl CommandLine {
    /// What was asked for instead of a run. A line that is wrong asks for nothing.
    pub fn asked(&self) -> Option<Asked> {
        self.asked.filter(|_| self.problems.is_empty())
    }

    fn take(&mut self, flag: &'static Flag, texts: &[&str]) -> Result<(), String> {
        if flag.deprecated {
            self.deprecated.push(flag.name);
        }
        if !flag.honoured {
            self.not_yet.push(flag.name);
        }
        let last = texts.last().copied().unwrap_or("");
        let flags = &mut self.flags;
        if let To::Labels(field) = flag.to {
            field(flags).extend(value::labels(texts));
            return Ok(());
        }
        // An empty address leaves the one that is.
        if flag.kind == Kind::Ip && last.is_empty() {
            return Ok(());
        }
        let read = match flag.to {
            To::Version => Value::Null,
            _ => value::read(flag.kind, texts)?,
        };
        match flag.to {
            To::Config(path) => self.fields.push((flag.name, path, read)),
            To::Text(field) => *field(flags) = last.to_owned(),
            To::Switch(field) => *field(flags) = read.as_bool().unwrap_or_default(),
            To::Number(field) => {
                *field(flags) = read.as_i64().and_then(|int| int.try_into().ok()).unwrap_or(0);
            }
            To::Span(field) => *field(flags) = GoDuration::parse(last).unwrap_or_default(),
            To::Bytes(field) => {
                let bytes = Quantity::parse(last).map_or(0, |quantity| quantity.value());
                *field(flags) = u64::try_from(bytes).map_err(|_| "must not be negative")?;
            }
            To::Help if read == Value::Bool(true) => self.asked = Some(Asked::Help),
            To::Version if version(last)? && self.asked.is_none() => {
                self.asked = Some(Asked::Version);
            }
            To::Labels(_) | To::Nowhere | To::Help | To::Version => {}
        }
        Ok(())
    }

    /// Rules for the flags that are no configuration fields.
    fn check(&self, problems: &mut Vec<Problem>) {
        let cloud = self.flags.cloud_provider.as_str();
        if !matches!(cloud, "" | "external") {
            let what = format!("must be \"external\" or nothing, not \"{cloud}\"");
            problems.push(Problem::of_flag("cloud-provider", what));
        }
        if let Err(what) = value::node_ips(&self.flags.node_ip) {
            problems.push(Problem::of_flag("node-ip", what));
        }
        if !self.flags.bootstrap_kubeconfig.is_empty() && self.flags.kubeconfig.is_empty() {
            let what = "needs --kubeconfig, the file that is written when there is a certificate";
            problems.push(Problem::of_flag("bootstrap-kubeconfig", what));
        }
        if self.flags.exit_on_lock_contention {
            let what = "this version does not see who else wants the lock file; leave the flag \
                        out, and stop this agent before the other one starts";
            problems.push(Problem::of_flag("exit-on-lock-contention", what));
        }
        let tape = self.flags.tape_max;
        if let Err(what) = value::tape_max(tape) {
            problems.push(Problem::of_flag("tape-max", what));
        }
        for (key, text) in &self.flags.node_labels {
            if let Some(what) = label(key, text) {
                problems.push(Problem::of_flag("node-labels", what));
            }
        }
    }
}

/// What `--version` says: whether to print it. `vX.Y.Z` sets what is reported, and can only be
/// ours.
fn version(text: &str) -> Result<bool, String> {
    match text {
        "raw" => Ok(true),
        _ if text.starts_with(KUBERNETES_VERSION) => Ok(false),
        _ if text.starts_with('v') => Err(format!("can only be {KUBERNETES_VERSION}")),
        _ => value::bool(text),
    }
}

/// Labels of Kubernetes' own that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// What is wrong with a label for the node.
fn label(key: &str, text: &str) -> Option<String> {
    let (space, _) = key.split_once('/').unwrap_or(("", key));
    let within = |domain: &str| {
        space.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let own = within("kubernetes.io") || within("k8s.io");
    let free = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    if !steplet_api::config::qualified_name(key) {
        Some(format!("\"{key}\" is no name of a label"))
    } else if !steplet_api::config::label_value(text) {
        Some(format!("\"{text}\" is no value of a label"))
    } else if own && !free && !OWN_LABELS.contains(&key) {
        Some(format!("{key} is not for nodes to set; use a name outside of kubernetes.io"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> Result<CommandLine, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let line = parse(args);
        let problems: Vec<String> = line.problems.iter().map(ToString::to_string).collect();
        if problems.is_empty() { Ok(line) } else { Err(problems.join("\n")) }
    }

    #[test]
    fn the_table_has_every_flag_once() {
        let reference = include_str!("../../../fixtures/configs/flags.txt");
        let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "a name stands twice");
        let ours = |name: &&str| !name.starts_with("tape-") && !name.starts_with("offline-");
        let theirs: Vec<&str> =
            reference.lines().map(|row| row.split(' ').next().unwrap()).collect();
        assert_eq!(names.iter().copied().filter(ours).collect::<Vec<_>>(), theirs);
        for row in reference.lines() {
            let columns: Vec<&str> = row.split(' ').collect();
            let flag = FLAGS.iter().find(|flag| flag.name == columns[0]).unwrap();
            assert_eq!(flag.deprecated, columns[2] == "deprecated", "{row}");
            let switch = matches!(flag.kind, Kind::Bool | Kind::Version);
            assert_eq!(switch, matches!(columns[1], "bool" | "version"), "{row}");
        }
        for (gone, _) in GONE {
            assert!(!names.contains(gone), "{gone}");
        }
    }

    /// Each mirror writes a field that exists, and its kind fits.
    #[test]
    fn mirrors_fit_their_fields() {
        for flag in FLAGS {
            let To::Config(path) = flag.to else { continue };
            let text = match flag.kind {
                Kind::Bool => "true",
                Kind::Duration => "1m",
                Kind::Int32 | Kind::Int64 | Kind::Level | Kind::Quantity => "7",
                Kind::Ip => "::1",
                Kind::Text | Kind::List => "a",
                Kind::Map | Kind::Pair => "a=b",
                Kind::Thresholds => "a<b",
                Kind::BoolMap => "a=true",
                Kind::Headers => "a:b",
                Kind::Taints => "a=b:NoExecute",
                Kind::ReservedMemory => "0:memory=1Gi",
                Kind::VModule => "a=1",
                Kind::Version => unreachable!("no field is a version"),
            };
            let read = value::read(flag.kind, &[text]).unwrap();
            let mut config = steplet_api::config::KubeletConfiguration::default();
            assert_eq!(config.set(path, read), [], "{}", flag.name);
            assert!(steplet_api::config::KubeletConfiguration::support(path).is_some());
        }
    }

    #[test]
    fn forms() {
        let got = line(&[
            "--root-dir=/a",
            "--root_dir",
            "/b",
            "--seccomp-default",
            "-v",
            "4",
            "--max-pods=0x10",
            "--fail-swap-on=false",
            "--node-labels=a=b,c",
            "--node-labels",
            "d=e",
            "--tape-max=1Gi",
            "--eviction-hard=memory.available<1Gi",
            "--eviction-hard=pid.available<5%",
        ])
        .unwrap();
        assert_eq!(got.flags.root_dir, "/b");
        assert!(got.flags.seccomp_default);
        assert_eq!(got.flags.tape_max, 1 << 30);
        let labels: Vec<String> =
            got.flags.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["a=b", "c=", "d=e"]);
        let fields: Vec<String> =
            got.fields.iter().map(|(_, path, value)| format!("{path}: {value}")).collect();
        assert_eq!(
            fields,
            [
                r#"evictionHard: {"memory.available":"1Gi","pid.available":"5%"}"#,
                "failSwapOn: false",
                "maxPods: 16",
                "logging.verbosity: 4",
            ]
        );
        assert_eq!(got.deprecated, ["eviction-hard", "fail-swap-on", "max-pods"]);
        assert_eq!(line(&["-v4"]).unwrap().fields, line(&["--v=4"]).unwrap().fields);
        assert_eq!(line(&["--config", "--x"]).unwrap().flags.config, "--x");
        assert_eq!(line(&["--address="]).unwrap().fields, []);
    }

    #[test]
    fn asked() {
        let check = |args: &[&str], want| assert_eq!(line(args).unwrap().asked(), want, "{args:?}");
        check(&["--help"], Some(Asked::Help));
        check(&["-h"], Some(Asked::Help));
        check(&["--help=false"], None);
        check(&["--version"], Some(Asked::Version));
        check(&["--version=raw"], Some(Asked::Version));
        check(&["--version=v1.36.3-dist"], None);
        check(&["--version", "--help"], Some(Asked::Help));
        check(&["--help", "--version"], Some(Asked::Help));
    }

    #[test]
    fn wrong_lines() {
        let check = |args: &[&str], want: &str| {
            assert_eq!(line(args).map(|_| ()).unwrap_err(), want, "{args:?}");
        };
        check(&["run"], "unknown command run");
        check(&["--v=2", "--", "--v=3"], "unknown command --v=3");
        check(&["--seccomp-default", "false"], "unknown command false");
        check(&["--maxpods=3"], "--maxpods: unknown flag; is it --max-pods?");
        check(&["--zzz"], "--zzz: unknown flag; --help shows all");
        check(&["-x"], "-x: unknown flag; --help shows all");
        check(&["--config"], "--config: needs a value");
        check(
            &["--logtostderr", "--port=x", "--pod-infra-container-image=y", "--sync-frequency=5"],
            "--logtostderr: is no flag any more; everything is logged to stderr\n\
             --pod-infra-container-image: is no flag any more; \
             set the sandbox image in the runtime's configuration\n\
             --port: must be an integer, not \"x\"\n\
             --sync-frequency: must be a duration such as 1m30s, not \"5\"",
        );
        check(&["--seccomp-default=yes"], "--seccomp-default: must be true or false, not \"yes\"");
        check(
            &["--cloud-provider=aws"],
            "--cloud-provider: must be \"external\" or nothing, not \"aws\"",
        );
        check(&["--version=v1.30.0"], "--version: can only be v1.36.3");
        check(&["--node-labels=a b=c"], "--node-labels: \"a b\" is no name of a label");
        check(
            &["--node-labels=kubernetes.io/role=x,node.kubernetes.io/y=z,kubernetes.io/os=linux"],
            "--node-labels: kubernetes.io/role is not for nodes to set; \
             use a name outside of kubernetes.io",
        );
        check(&["--tape-max=-1"], "--tape-max: must not be negative");
        check(
            &["--tape-max=1"],
            "--tape-max: must be 0, for no tape, or at least 1Mi, not 1 bytes",
        );
        check(
            &["--node-ip=node1"],
            "--node-ip: must be an address, or one of each family, not \"node1\"",
        );
        assert!(line(&["--bootstrap-kubeconfig=/b", "--kubeconfig=/k"]).is_ok());
        let got = line(&["--bootstrap-kubeconfig=/b"]).map(|_| ()).unwrap_err();
        assert!(got.starts_with("--bootstrap-kubeconfig: ") && got.lines().count() == 1, "{got}");
        check(
            &["--tape-max=x"],
            "--tape-max: \"x\": not a quantity: want a number and a suffix, as in 1.5Gi",
        );
    }
}
