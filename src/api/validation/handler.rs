//! Probes and hooks: what runs at or against a container.

use super::{Path, Problems, names};
use crate::container::{
    Container, ExecAction, HttpGetAction, LifecycleHandler, Probe, TcpSocketAction, scheme,
};
use crate::meta::IntOrString;
use crate::pod::PodSpec;

const PORT_MAX: i64 = 65_535;

pub(super) fn check_probes(out: &mut Problems, at: &Path<'_>, container: &Container) {
    let at_liveness = at.field("livenessProbe");
    if let Some(probe) = container.liveness_probe.as_deref() {
        check_probe(out, &at_liveness, probe);
        check_single_success(out, &at_liveness, probe);
    }
    let at_readiness = at.field("readinessProbe");
    if let Some(probe) = container.readiness_probe.as_deref() {
        check_probe(out, &at_readiness, probe);
        if let Some(seconds) = probe.termination_grace_period_seconds {
            let at = at_readiness.field("terminationGracePeriodSeconds");
            out.invalid(&at, seconds, "must not be set for readiness probes");
        }
    }
    let at_startup = at.field("startupProbe");
    if let Some(probe) = container.startup_probe.as_deref() {
        check_probe(out, &at_startup, probe);
        check_single_success(out, &at_startup, probe);
    }
}

/// Probes that end a container when they fail have nothing to count successes for.
fn check_single_success(out: &mut Problems, at: &Path<'_>, probe: &Probe) {
    if probe.success_threshold != 1 {
        out.invalid(&at.field("successThreshold"), probe.success_threshold, "must be 1");
    }
}

fn check_probe(out: &mut Problems, at: &Path<'_>, probe: &Probe) {
    let mut handlers = Handlers::new(at);
    handlers.exec(out, probe.exec.as_ref());
    handlers.http_get(out, probe.http_get.as_deref());
    handlers.tcp_socket(out, probe.tcp_socket.as_ref());
    if let Some(action) = &probe.grpc {
        handlers.another(out, "grpc");
        check_port_number(out, &at.field("grpc").field("port"), action.port);
    }
    handlers.end(out);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, number) in numbers {
        out.not_negative(&at.field(field), number.into());
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        let at = at.field("terminationGracePeriodSeconds");
        out.invalid(&at, seconds, "must be greater than 0");
    }
}

pub(super) fn check_lifecycle(
    out: &mut Problems,
    at: &Path<'_>,
    spec: &PodSpec,
    container: &Container,
) {
    let Some(lifecycle) = container.lifecycle.as_deref() else {
        return;
    };
    let at = at.field("lifecycle");
    let grace_seconds = spec.termination_grace_period_seconds.unwrap_or(0);
    if let Some(hook) = &lifecycle.post_start {
        check_hook(out, &at.field("postStart"), hook, grace_seconds);
    }
    if let Some(hook) = &lifecycle.pre_stop {
        check_hook(out, &at.field("preStop"), hook, grace_seconds);
    }
    if lifecycle.stop_signal.is_some() && spec.os.is_none() {
        let message = "may only be set when spec.os.name says whose signals are meant";
        out.forbidden(&at.field("stopSignal"), message);
    }
}

fn check_hook(out: &mut Problems, at: &Path<'_>, hook: &LifecycleHandler, grace_seconds: i64) {
    let mut handlers = Handlers::new(at);
    handlers.exec(out, hook.exec.as_ref());
    handlers.http_get(out, hook.http_get.as_deref());
    handlers.tcp_socket(out, hook.tcp_socket.as_ref());
    if let Some(action) = &hook.sleep {
        handlers.another(out, "sleep");
        if action.seconds < 0 || action.seconds > grace_seconds {
            let message = format_args!(
                "must not be negative or longer than the grace period of {grace_seconds} seconds"
            );
            out.invalid(&at.field("sleep"), action.seconds, message);
        }
    }
    handlers.end(out);
}

/// Counts the handlers of a probe or hook: it must have one, and not another.
struct Handlers<'a> {
    at: &'a Path<'a>,
    any: bool,
}

impl<'a> Handlers<'a> {
    fn new(at: &'a Path<'a>) -> Self {
        Handlers { at, any: false }
    }

    fn another(&mut self, out: &mut Problems, field: &str) {
        if self.any {
            out.forbidden(&self.at.field(field), "may not specify more than one handler");
        }
        self.any = true;
    }

    fn end(self, out: &mut Problems) {
        if !self.any {
            out.required(self.at, "must specify a handler");
        }
    }

    fn exec(&mut self, out: &mut Problems, action: Option<&ExecAction>) {
        if let Some(action) = action {
            self.another(out, "exec");
            if action.command.is_empty() {
                out.required(&self.at.field("exec").field("command"), "");
            }
        }
    }

    fn http_get(&mut self, out: &mut Problems, action: Option<&HttpGetAction>) {
        if let Some(action) = action {
            self.another(out, "httpGet");
            let at = self.at.field("httpGet");
            out.require(&at.field("path"), &action.path);
            check_port(out, &at.field("port"), &action.port);
            out.one_of(&at.field("scheme"), &action.scheme, &[scheme::HTTP, scheme::HTTPS]);
            let headers = at.field("httpHeaders");
            for (index, header) in action.http_headers.iter().enumerate() {
                out.name(&headers.index(index), &header.name, names::http_header);
            }
        }
    }

    fn tcp_socket(&mut self, out: &mut Problems, action: Option<&TcpSocketAction>) {
        if let Some(action) = action {
            self.another(out, "tcpSocket");
            check_port(out, &self.at.field("tcpSocket").field("port"), &action.port);
        }
    }
}

fn check_port(out: &mut Problems, at: &Path<'_>, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => check_port_number(out, at, *number),
        IntOrString::String(name) => out.name(at, name, names::port_name),
    }
}

pub(super) fn check_port_number(out: &mut Problems, at: &Path<'_>, number: i32) {
    out.within(at, number.into(), 1..=PORT_MAX);
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    /// `want` are paths behind that of the probe or hook, which stands at `place` of a container.
    fn check(place: &str, value: Value, want: &[&str]) {
        let pointer = String::from("/spec/containers/0/") + place;
        let path = pointer[1..].replace("/0/", "[0].").replace('/', ".");
        let want: Vec<_> = want.iter().map(|want| [&path, *want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(&[(&pointer, value)], &want);
    }

    #[test]
    fn one_handler() {
        let exec = json!({"command": ["a"]});
        for place in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle/preStop"] {
            check(place, json!({}), &[": Required value"]);
            check(place, json!({"exec": exec}), &[]);
            check(place, json!({"exec": {}}), &[".exec.command: Required value"]);
            let two = json!({"exec": exec, "tcpSocket": {"port": 1}});
            check(place, two, &[".tcpSocket: Forbidden"]);
        }
        let two = json!({"httpGet": {"port": 1}, "grpc": {"port": 1}});
        check("livenessProbe", two, &[".grpc: Forbidden"]);
    }

    #[test]
    fn targets() {
        fn http(action: Value, want: &[&str]) {
            check("livenessProbe", json!({ "httpGet": action }), want);
        }
        http(json!({"port": "abc", "path": "x"}), &[]);
        http(json!({"port": 0}), &[".httpGet.port: Invalid value"]);
        http(json!({"port": 65536}), &[".httpGet.port: Invalid value"]);
        http(json!({"port": "80"}), &[".httpGet.port: Invalid value"]);
        http(json!({"port": 1, "scheme": "http"}), &[".httpGet.scheme: Unsupported value"]);
        let header = json!({"port": 1, "httpHeaders": [{"name": "a b", "value": ""}]});
        http(header, &[".httpGet.httpHeaders[0]: Invalid value"]);
        check("startupProbe", json!({"grpc": {"port": 0}}), &[".grpc.port: Invalid value"]);
        let socket = json!({"tcpSocket": {"port": "-"}});
        check("readinessProbe", socket, &[".tcpSocket.port: Invalid value"]);
    }

    #[test]
    fn numbers() {
        fn probe(place: &str, field: &str, number: i64, want: &[&str]) {
            check(place, json!({"grpc": {"port": 1}, field: number}), want);
        }
        let negative = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        for field in negative {
            let want = [".", field, ": Invalid value"].concat();
            probe("readinessProbe", field, -1, &[&want]);
        }
        probe("readinessProbe", "successThreshold", 2, &[]);
        let must_be_one = &[".successThreshold: Invalid value"];
        probe("livenessProbe", "successThreshold", 2, must_be_one);
        probe("startupProbe", "successThreshold", 2, must_be_one);
        let grace = "terminationGracePeriodSeconds";
        let invalid = &[".terminationGracePeriodSeconds: Invalid value"];
        probe("livenessProbe", grace, 1, &[]);
        probe("livenessProbe", grace, 0, invalid);
        probe("readinessProbe", grace, 1, invalid);
    }

    #[test]
    fn hooks() {
        fn sleep(seconds: i64, want: &[&str]) {
            check("lifecycle/preStop", json!({"sleep": {"seconds": seconds}}), want);
        }
        sleep(0, &[]);
        sleep(30, &[]);
        sleep(31, &[".sleep: Invalid value"]);
        sleep(-1, &[".sleep: Invalid value"]);
        check("lifecycle", json!({"stopSignal": "SIGTERM"}), &[".stopSignal: Forbidden"]);
    }
}
