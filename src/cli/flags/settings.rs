//! Which word counts: defaults, then `--config`, then `--config-dir`, then flags.

use super::KubeletFlags;
use super::files::Files;
use super::line::CommandLine;
use super::problem::{Place, Problem, told};
use crate::cli::kubeconfig::{self, Access};
use crate::shell::boot;
use crate::shell::doors::api::Authorities;
use crate::shell::yaml::{self, Document, Limits, LineMap};
use steplet_api::config::{self, FeatureGates, KubeletConfiguration, Machine, ProblemKind};
use steplet_core::settings::Visitors;

/// Everything that the agent was told, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    pub flags: KubeletFlags,
    pub config: KubeletConfiguration,
    pub gates: FeatureGates,
    /// The cluster; None: the node stands alone.
    pub api: Option<Access>,
    /// For the log at start, a line each.
    pub warnings: Vec<String>,
}

/// What the machine has to say in whether the agent may start.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// 1 also when versions are mixed, 0 when no cgroup filesystem is mounted.
    pub cgroup_version: u8,
    pub swap_is_on: bool,
}

impl Settings {
    /// Whether containers without a seccomp profile get RuntimeDefault: the flag or the field says.
    pub fn seccomp_default(&self) -> bool {
        self.flags.seccomp_default || self.config.seccomp_default
    }
}

/// Reads the files that the command line names and lays everything over each other.
///
/// # Errors
/// All problems of all files and rules, the harmless ones too, when one of them is not.
pub fn settings(
    line: &CommandLine,
    files: &dyn Files,
    host: Host,
) -> Result<Settings, Vec<Problem>> {
    let problems = line.problems.clone();
    let mut layers = Layers { line, files, base: None, drop_ins: Vec::new(), problems };
    let mut gates = FeatureGates::default();
    let mut config = KubeletConfiguration::legacy();
    layers.flags(&mut config);
    layers.say_all(gates.set(&config.feature_gates));
    let mut defaults = KubeletConfiguration::legacy();
    if !line.flags.config.is_empty() {
        // Without it nothing is known of what was wanted, and the rules would speak of the defaults.
        let Some(read) = layers.file(&line.flags.config, &gates) else {
            return Err(layers.problems);
        };
        config = read;
        defaults = KubeletConfiguration::file_defaults();
    }
    if !line.flags.config_dir.is_empty() {
        config = layers.directory(&line.flags.config_dir, &config, &gates);
    }
    if !line.flags.config.is_empty() || !line.flags.config_dir.is_empty() {
        layers.flags(&mut config);
        layers.say_all(gates.set(&config.feature_gates));
    }
    let machine = Machine { cgroup_v1: host.cgroup_version == 1 };
    layers.say_all(config.check(&gates, machine));
    layers.say_all(impossible(&config, host));
    let beyond = config.beyond(&defaults);
    layers.say_all(beyond.refused);

    let api = layers.access(&config);
    if host.cgroup_version == 0 {
        let what = "no cgroup filesystem is mounted: mount one at /sys/fs/cgroup";
        layers.problems.push(Problem::new(Place::Nowhere, what));
    }

    let problems = layers.problems;
    if problems.iter().any(|problem| !problem.harmless) {
        return Err(problems);
    }
    let mut flags = line.flags.clone();
    if flags.tape_dir.is_empty() {
        flags.tape_dir = config::join(&flags.root_dir, "tapes");
    }
    let mut warnings = warnings(line, &problems, &config, beyond.not_yet);
    warnings.extend(api.iter().flat_map(|access| access.warnings.iter().cloned()));
    if config.server_tls_bootstrap && api.is_none() {
        let what =
            "serverTLSBootstrap needs a --kubeconfig: the certificate of 10250 is self-signed";
        warnings.push(what.into());
    }
    if api.as_ref().is_some_and(|access| access.api.authorities == Authorities::Everybody) {
        let what = "the kubeconfig has insecure-skip-tls-verify: whoever is on the way to the API \
                    server can read and change everything";
        warnings.push(what.into());
    }
    Ok(Settings { flags, config, gates, api, warnings })
}

/// What cannot be done on this host, or by this program, each with the way out.
fn impossible(config: &KubeletConfiguration, host: Host) -> Vec<config::Problem> {
    let mut problems = Vec::new();
    let mut say = |path: &str, what: String| {
        problems.push(config::Problem::new(path, ProblemKind::Refused, what));
    };
    if host.swap_is_on && config.fail_swap_on {
        let what = "swap is on, and this forbids that: turn it off (swapoff -a), or set \
                    failSwapOn: false (--fail-swap-on=false)";
        say("failSwapOn", what.into());
    }
    let patterns = config.logging.vmodule.iter().map(|item| item.file_pattern.as_str());
    if let Some(pattern) = patterns.into_iter().find(|p| p.contains(['[', ']', '\\'])) {
        let what = format!(
            "of the signs in patterns this version knows * and ? only, not those of \"{pattern}\""
        );
        say("logging.vmodule", what);
    }
    let endpoints = [
        ("containerRuntimeEndpoint", &config.container_runtime_endpoint),
        ("imageServiceEndpoint", &config.image_service_endpoint),
    ];
    for (path, endpoint) in endpoints.into_iter().filter(|(_, endpoint)| !endpoint.is_empty()) {
        if let Err(what) = boot::socket_path(endpoint) {
            say(path, what);
        }
    }
    problems
}

/// A file that was read, for the lines of problems that show later.
struct Layer {
    name: String,
    lines: LineMap,
}

struct Layers<'a> {
    line: &'a CommandLine,
    files: &'a dyn Files,
    base: Option<Layer>,
    drop_ins: Vec<Layer>,
    problems: Vec<Problem>,
}

impl Layers<'_> {
    /// Lays the flags over a configuration. Gates are merged, patterns of --vmodule added; all
    /// other flags replace.
    fn flags(&mut self, config: &mut KubeletConfiguration) {
        // Only the flags can set these: where upstream declares them it forgets what the file said.
        config.logging.options.text.split_stream = false;
        config.logging.options.json.split_stream = false;
        let gates = config.feature_gates.clone();
        let vmodule = config.logging.vmodule.clone();
        for (name, path, value) in &self.line.fields {
            for problem in config.set(path, value.clone()) {
                let said = Problem::of_flag(name, problem.what);
                self.problems.push(Problem { path: problem.path, ..said });
            }
            match *path {
                "featureGates" => {
                    for (gate, on) in &gates {
                        config.feature_gates.entry(gate.clone()).or_insert(*on);
                    }
                }
                "logging.vmodule" => {
                    config.logging.vmodule.splice(0..0, vmodule.iter().cloned());
                }
                _ => {}
            }
        }
    }

    /// Reads `--config`. Whatever is wrong with fields of it, the result is a configuration, so that
    /// the rest can be looked at too.
    fn file(&mut self, name: &str, gates: &FeatureGates) -> Option<KubeletConfiguration> {
        let document = self.read(name)?;
        let (mut config, problems) = KubeletConfiguration::from_file(&document.json, gates);
        let is_one = problems.iter().all(|problem| !problem.path.is_empty());
        self.in_file(name, &document, problems, true);
        if !is_one {
            return None;
        }
        let path = self.files.absolute(name).unwrap_or_else(|_| name.to_owned());
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        config.resolve_paths(&format!("{directory}/"));
        self.base = Some(Layer { name: name.to_owned(), lines: document.lines });
        Some(config)
    }

    /// Reads the drop-ins of `--config-dir` and lays them over `base`.
    fn directory(
        &mut self,
        dir: &str,
        base: &KubeletConfiguration,
        gates: &FeatureGates,
    ) -> KubeletConfiguration {
        let names = match self.files.walk(dir) {
            Ok(names) => names,
            Err(error) => {
                self.problems.push(Problem::of_file(dir, None, error.to_string()));
                return base.clone();
            }
        };
        let mut jsons = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(".conf")) {
            let Some(document) = self.read(name) else { continue };
            let problems = KubeletConfiguration::check_drop_in(&document.json);
            self.in_file(name, &document, problems, false);
            jsons.push(document.json);
            self.drop_ins.push(Layer { name: name.clone(), lines: document.lines });
        }
        let slices: Vec<&[u8]> = jsons.iter().map(Vec::as_slice).collect();
        let (config, problems) = base.with_drop_ins(&slices, gates);
        self.say_all(problems);
        config
    }

    /// What `--kubeconfig` gives access to, or will.
    fn access(&mut self, config: &KubeletConfiguration) -> Option<Access> {
        let flags = &self.line.flags;
        if flags.kubeconfig.is_empty() {
            return None;
        }
        match kubeconfig::access(flags, config.rotate_certificates, self.files) {
            Ok(mut access) => {
                self.problems.append(&mut access.problems);
                Some(access)
            }
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    fn read(&mut self, name: &str) -> Option<Document> {
        let bytes = match self.files.read(name, Limits::FILE.bytes) {
            Ok(bytes) if bytes.is_empty() => {
                self.problems.push(Problem::of_file(name, None, "is empty"));
                return None;
            }
            Ok(bytes) => bytes,
            Err(error) => {
                self.problems.push(Problem::of_file(name, None, error.to_string()));
                return None;
            }
        };
        match yaml::to_json(&bytes, Limits::FILE) {
            Ok(document) => Some(document),
            Err(error) => {
                let mark = yaml::Mark { line: error.line, column: error.column };
                self.problems.push(Problem::of_file(name, Some(mark), error.what));
                None
            }
        }
    }

    /// Tells the problems of one file. Keys given twice are harmless where upstream falls back to
    /// its lenient reader, which is for the base only.
    fn in_file(
        &mut self,
        name: &str,
        document: &Document,
        problems: Vec<config::Problem>,
        lenient: bool,
    ) {
        for twice in &document.duplicates {
            let what = "is given twice; the last one counts";
            let problem = Problem::of_file(name, Some(twice.mark), what);
            self.problems.push(Problem { path: twice.path.clone(), harmless: lenient, ..problem });
        }
        let problems = problems.into_iter();
        self.problems.extend(problems.map(|p| Problem::in_file(name, &document.lines, p)));
        self.problems.sort_by_key(|problem| match &problem.place {
            Place::File { name: other, mark: Some(mark) } if other == name => {
                (1, mark.line, mark.column)
            }
            _ => (0, 0, 0),
        });
    }

    /// Tells problems of the whole, each at the layer that had the last word. What is wrong at a
    /// field that could not be read, or was told before, follows from that.
    fn say_all(&mut self, problems: Vec<config::Problem>) {
        let told = self.problems.len();
        for problem in problems {
            if self.problems[..told].iter().any(|p| !p.harmless && p.path == problem.path) {
                continue;
            }
            let place = self.last_word(&problem.path);
            let harmless = problem.kind == ProblemKind::Unknown;
            let fixed = Problem { harmless, ..Problem::new(place, problem.what) };
            self.problems.push(Problem { path: problem.path, ..fixed });
        }
    }

    fn last_word(&self, path: &str) -> Place {
        let within = |field: &str| {
            let rest = path.strip_prefix(field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if let Some((name, ..)) = self.line.fields.iter().find(|(_, field, _)| within(field)) {
            return Problem::of_flag(name, "").place;
        }
        for layer in self.drop_ins.iter().rev().chain(&self.base) {
            if let Some(mark) = layer.lines.find(path) {
                return Place::File { name: layer.name.clone(), mark: Some(mark) };
            }
        }
        match &self.base {
            Some(layer) => Place::File { name: layer.name.clone(), mark: None },
            None => Place::Nowhere,
        }
    }
}

/// What to log at start: harmless problems, old flags, and what has no effect yet, an item each.
fn warnings(
    line: &CommandLine,
    problems: &[Problem],
    config: &KubeletConfiguration,
    not_yet: Vec<String>,
) -> Vec<String> {
    let mut warnings: Vec<String> =
        told(problems).into_iter().map(|problem| format!("ignored: {problem}")).collect();
    let dashed = |names: &[&str]| names.iter().map(|n| format!("--{n}")).collect::<Vec<_>>();
    let is_field = |name: &&&str| line.fields.iter().any(|(flag, ..)| flag == *name);
    let (mirrors, others): (Vec<_>, Vec<_>) = line.deprecated.iter().partition(is_field);
    if !mirrors.is_empty() {
        let flags = dashed(&mirrors).join(", ");
        warnings.push(format!("deprecated flags, better set in the file of --config: {flags}"));
    }
    if !others.is_empty() {
        warnings.push(format!("deprecated flags: {}", dashed(&others).join(", ")));
    }
    let mut idle = dashed(&line.not_yet);
    idle.extend(not_yet);
    if !idle.is_empty() {
        warnings.push(format!("set but without effect yet: {}", idle.join(", ")));
    }
    if line.flags.kubeconfig.is_empty() {
        warnings.extend(visitors(config).map(str::to_owned));
    }
    warnings
}

/// What the words about credentials come to, when there is no API server to ask.
fn visitors(config: &KubeletConfiguration) -> Option<&'static str> {
    if !config.enable_server {
        return None;
    }
    let anonymous = config.authentication.anonymous.enabled;
    match (Visitors::of(&config.authorization.mode), anonymous) {
        (Visitors::Everybody, true) => None,
        (Visitors::Everybody, false) => Some(
            "without --kubeconfig nobody can be asked who calls: with \
             authorization.mode AlwaysAllow the port with TLS \
             answers everybody, although anonymous access is off",
        ),
        (Visitors::Loopback, _) => Some(
            "without --kubeconfig nobody can be asked who calls: the port with TLS \
                 answers whoever asks on the \
             loopback, and refuses all others",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::io;

    /// Files by their path, in the order of a walk.
    #[derive(Default)]
    struct Fake(BTreeMap<String, Vec<u8>>);

    impl Files for Fake {
        fn read(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
            let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(bytes[..bytes.len().min(most + 1)].to_vec())
        }
        fn walk(&self, dir: &str) -> io::Result<Vec<String>> {
            let below = self.0.keys().filter(|path| path.starts_with(&format!("{dir}/")));
            let below: Vec<String> = below.cloned().collect();
            if below.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(below) }
        }
        fn absolute(&self, path: &str) -> io::Result<String> {
            Ok(path.to_owned())
        }
    }

    fn run(
        args: &[&str],
        files: &[(&str, &str)],
        cgroup_v1: bool,
    ) -> Result<Settings, Vec<String>> {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.as_bytes().to_vec()));
        let files = Fake(files.collect());
        let said = |problems: Vec<Problem>| problems.iter().map(|p| p.to_string()).collect();
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let host = Host { cgroup_version: if cgroup_v1 { 1 } else { 2 }, swap_is_on: false };
        settings(&parse(args), &files, host).map_err(said)
    }

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    fn with_file(fields: &str) -> Result<Settings, Vec<String>> {
        run(&["--config=/c/k.yaml"], &[("/c/k.yaml", &format!("{HEAD}{fields}"))], false)
    }

    /// Arguments and files, and what the reference kubelet 1.36.3 made of them on a machine with
    /// cgroup v1: how its configuration differs from the defaults, or that it refused.
    #[test]
    fn precedence_is_that_of_upstream() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let cases = parse(include_str!("../../../fixtures/configs/precedence.json"));
        let defaults = parse(include_str!("../../../fixtures/configs/defaults.json"));
        let legacy = parse(include_str!("../../../fixtures/configs/legacy-defaults.json"));
        for case in cases.as_array().unwrap() {
            let name = case["case"].as_str().unwrap();
            let args: Vec<&str> =
                case["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let files: Vec<(&str, &str)> = case["files"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str().unwrap()))
                .collect();
            let got = run(&args, &files, true);
            if case["refused"] == true {
                assert!(got.is_err(), "{name}");
                continue;
            }
            let got = got.unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
            let from_file = args.iter().any(|arg| arg.starts_with("--config="));
            let mut want = if from_file { defaults.clone() } else { legacy.clone() };
            for (key, value) in case["differs"].as_object().unwrap() {
                want[key] = value.clone();
            }
            // Null stands for a field that is not written.
            want.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            assert_eq!(parse(&got.config.to_json()), want, "{name}");
        }
        assert!(cases.as_array().unwrap().len() > 40);
    }

    /// kubespray#11111: file, line, key, and what to write instead.
    #[test]
    fn bare_numbers() {
        let check = |fields: &str, want: &[&str]| {
            assert_eq!(with_file(fields).map(|_| ()).unwrap_err(), want, "{fields}");
        };
        check(
            "systemReserved:\n  cpu: 1\n  memory: 256Mi\n  pid: 0100\n",
            &[
                "/c/k.yaml:4:3: systemReserved.cpu: must be a string, not the number 1; \
                 write cpu: \"1\"",
                "/c/k.yaml:6:3: systemReserved.pid: must be a string, not the number 64; \
                 write pid: \"0100\"",
            ],
        );
        check(
            "evictionHard: {memory.available: 5}\nclusterDNS: [1.1]\nproviderID: yes\n",
            &[
                "/c/k.yaml:3:16: evictionHard[memory.available]: must be a string, \
                 not the number 5; write memory.available: \"5\"",
                "/c/k.yaml:4:14: clusterDNS[0]: must be a string, not the number 1.1; \
                 write - \"1.1\"",
                "/c/k.yaml:5:1: providerID: must be a string, not the boolean true; \
                 write providerID: \"yes\"",
            ],
        );
        assert!(with_file("systemReserved: {cpu: \"1\", pid: \"1000\"}").is_ok());
    }

    /// k/k#83204: as the reference, such a file starts; what was ignored is said, all at once.
    #[test]
    fn unknown_and_doubled_keys() {
        let fields = "MaxPods: 20\nreservedCpus: 0-4\nmaxPods: 30\nmaxPods: 40\n";
        let settings = with_file(fields).unwrap();
        assert_eq!(settings.config.max_pods, 40);
        assert_eq!(
            settings.warnings,
            [
                "ignored: /c/k.yaml:3:1: MaxPods: unknown field, names are case-sensitive: maxPods",
                "ignored: /c/k.yaml:4:1: reservedCpus: unknown field; is it reservedSystemCPUs?",
                "ignored: /c/k.yaml:6:1: maxPods: is given twice; the last one counts",
                "without --kubeconfig nobody can be asked who calls: the port with TLS \
                 answers whoever asks on the \
                 loopback, and refuses all others",
            ]
        );
        // With a real mistake beside them all are told together.
        let problems = with_file(&format!("{fields}port: x\noomScoreAdj: 5000\n")).unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems[3].starts_with("/c/k.yaml:7:1: port: must be"), "{problems:?}");
        assert!(problems[4].starts_with("/c/k.yaml:8:1: oomScoreAdj: must be"), "{problems:?}");
    }

    #[test]
    fn rules_name_the_layer_that_had_the_last_word() {
        let base = format!("{HEAD}maxPods: -1\nport: 0\npodsPerCore: -1\n");
        let drop_in = format!("{HEAD}port: -5\n");
        let files = [("/c/k.yaml", base.as_str()), ("/d/1.conf", drop_in.as_str())];
        let args = ["--config=/c/k.yaml", "--config-dir=/d", "--max-pods=-2"];
        assert_eq!(
            run(&args, &files, true).unwrap_err(),
            [
                "--max-pods: maxPods: must be at least 0, not -2",
                "/c/k.yaml:5:1: podsPerCore: must be at least 0, not -1",
                "/d/1.conf:3:1: port: must be between 1 and 65535, not -5",
                "/c/k.yaml: failCgroupV1: this machine has cgroup v1; \
                 to run here all the same, set failCgroupV1: false",
            ]
        );
    }

    #[test]
    fn broken_files() {
        let check = |text: &str, want: &str| {
            let problems = run(&["--config=/c/k.yaml"], &[("/c/k.yaml", text)], true).unwrap_err();
            assert_eq!(problems, [want], "{text}");
        };
        check("", "/c/k.yaml: is empty");
        check("# x\n", "/c/k.yaml:2:1: is empty");
        check("a: [\n", "/c/k.yaml:1:4: unclosed bracket '['");
        check("[1]", "/c/k.yaml:1:1: is no KubeletConfiguration");
        let problems = run(&["--config=/none"], &[], true).unwrap_err();
        assert_eq!(problems, ["/none: entity not found"]);
        let huge = "#".repeat(Limits::FILE.bytes + 5);
        check(&huge, "/c/k.yaml:1:1: larger than 10485760 bytes");
    }

    #[test]
    fn what_is_refused_and_what_waits() {
        let problems =
            with_file("cpuManagerPolicy: static\nmemoryManagerPolicy: Static\n").unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].starts_with("/c/k.yaml:3:1: cpuManagerPolicy: \"static\" cannot be kept")
        );
        let settings =
            with_file("imageMinimumGCAge: 1h\nmaxPods: 5\nfailCgroupV1: true\n").unwrap();
        let nobody = "without --kubeconfig nobody can be asked who calls: the port with TLS \
                 answers whoever asks on the \
                      loopback, and refuses all others";
        assert_eq!(settings.warnings, ["set but without effect yet: imageMinimumGCAge", nobody]);
        let visitors = |fields: &str| with_file(fields).unwrap().warnings;
        assert_eq!(visitors(""), [nobody]);
        assert_eq!(visitors("enableServer: false\n"), Vec::<String>::new());
        let open = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n";
        let warnings = visitors(open);
        assert!(warnings.len() == 1 && warnings[0].contains("loopback"), "{warnings:?}");
        let all = format!("{open}authorization: {{mode: AlwaysAllow}}\n");
        assert_eq!(visitors(&all), Vec::<String>::new());
        let warnings = visitors("authorization: {mode: AlwaysAllow}\n");
        assert!(warnings.len() == 1 && warnings[0].contains("everybody"), "{warnings:?}");
        let args = ["--max-pods=5", "--port=10251", "--runtime-cgroups=/r", "--lock-file=/l"];
        let settings = run(&args, &[], false).unwrap();
        assert_eq!(
            settings.warnings,
            [
                "deprecated flags, better set in the file of --config: --max-pods, --port",
                "set but without effect yet: --runtime-cgroups",
            ]
        );
        let args = ["--boot-id-file=/x", "--max-pods=5", "--maximum-dead-containers=3"];
        assert_eq!(
            run(&args, &[], false).unwrap().warnings,
            [
                "deprecated flags, better set in the file of --config: --max-pods",
                "deprecated flags: --maximum-dead-containers, --boot-id-file",
                "set but without effect yet: --maximum-dead-containers, --boot-id-file",
            ]
        );
        assert_eq!(run(&[], &[], false).unwrap().warnings, Vec::<String>::new());
    }

    /// One start tells everything: wrong flags, wrong fields, and what the host forbids.
    #[test]
    fn refusals_are_told_at_once() {
        let args = ["--config=/c/k.yaml", "--kubeconfig=/k", "--node-ip=n1", "--bogus"];
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let text = format!("{HEAD}cpuManagerPolicy: static\ncontainerRuntimeEndpoint: tcp://a:1\n");
        let files = Fake([("/c/k.yaml".to_owned(), text.into_bytes())].into());
        let host = Host { cgroup_version: 2, swap_is_on: true };
        let problems = settings(&parse(args), &files, host).unwrap_err();
        let said: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let starts = [
            "--bogus: ",
            "--node-ip: ",
            "/c/k.yaml: failSwapOn: ",
            "/c/k.yaml:4:1: containerRuntimeEndpoint: ",
            "/c/k.yaml:3:1: cpuManagerPolicy: ",
            "--kubeconfig: cannot read /k: ",
        ];
        assert_eq!(said.len(), starts.len(), "{said:?}");
        assert!(said.iter().zip(starts).all(|(said, start)| said.starts_with(start)), "{said:?}");
    }

    #[test]
    fn own_flags() {
        let settings = run(&["--root-dir=/r", "--seccomp-default"], &[], false).unwrap();
        assert_eq!(settings.flags.tape_dir, "/r/tapes");
        assert_eq!(settings.flags.tape_max, 64 << 20);
        assert!(settings.seccomp_default() && !settings.config.seccomp_default);
        let settings = run(&["--tape-dir=/t", "--tape-max=1Gi"], &[], false).unwrap();
        assert_eq!((settings.flags.tape_dir.as_str(), settings.flags.tape_max), ("/t", 1 << 30));
    }
}
