//! The services of the cluster, and the variables by which containers find them.
//!
//! Upstream: pkg/kubelet/envvars/envvars.go, getServiceEnvVarMap in pkg/kubelet/kubelet_pods.go (v1.36).
//! Owns: the services as they were last listed or watched. Publishes: `facts.services`. Hears: Booted. Says: Learned.
//! Asks: the list of services that have an address. Never: keeps more of a service than its address and ports.

use crate::cx::Cx;
use crate::event::{Item, Outcome};
use crate::managers::api::reflector::{Change, Reflector};
use crate::managers::containers::ConfigError;
use crate::managers::containers::expansion::Env;
use crate::note::{Learned, Note};
use crate::rng::Rng;
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{Service as Object, ServicePort};
use steplet_api::pod::Pod;
use steplet_api::pod_facts::is_static;

/// The API server's own service: every container finds it.
const MASTER: (&str, &str) = ("default", "kubernetes");

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Services {
    reflector: Reflector,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Follow,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServicesFacts {
    /// There is an API server to learn them from.
    follows: bool,
    /// They were listed at least once.
    read: bool,
    /// By namespace and name.
    all: BTreeMap<(Box<str>, Box<str>), Service>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Service {
    ip: Box<str>,
    /// Name, protocol and number.
    ports: Vec<(Box<str>, Box<str>, i32)>,
}

impl Services {
    /// `kept`: those of an earlier life. Pods that were kept without them (`alone`) go without.
    pub(crate) fn on_booted(
        &mut self,
        cx: &mut Cx<'_>,
        kept: Option<Vec<Object>>,
        alone: bool,
        rng: Rng,
    ) {
        if cx.facts.settings().api.is_some() {
            cx.facts.services.follows = true;
            cx.facts.services.read = kept.is_some() || alone;
            for object in kept.into_iter().flatten() {
                put(&mut cx.facts.services.all, object);
            }
            self.reflector = Reflector::of("/api/v1/services", "spec.clusterIP!", "None", rng);
            self.reflector.start(cx, Ask::Follow);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.reflector.deadline()
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.reflector.on_api_back(cx);
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.reflector.on_tick(cx, Ask::Follow);
    }

    pub(crate) fn on_item(&mut self, cx: &mut Cx<'_>, item: Item) {
        let Item::Line(line) = item else { return };
        match self.reflector.on_line::<Object>(cx, &line) {
            Some(Change::Set(object)) => put(&mut cx.facts.services.all, object),
            Some(Change::Gone(object)) => {
                cx.facts.services.all.remove(&name(&object));
            }
            // Its variables stay as they were.
            Some(Change::Unreadable(_)) | None => return,
        }
        cx.say(Note::Learned(Learned::Services));
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, _: Ask, outcome: Outcome) {
        let Some(listed) = self.reflector.on_done::<Object>(cx, Ask::Follow, outcome) else {
            return;
        };
        let facts = &mut cx.facts.services;
        facts.read = true;
        let old = core::mem::take(&mut facts.all);
        for (meta, _) in listed.unreadable {
            let name = (meta.namespace, meta.name);
            if let Some(known) = old.get(&name) {
                facts.all.insert(name, known.clone());
            }
        }
        for object in listed.items {
            put(&mut facts.all, object);
        }
        cx.say(Note::Learned(Learned::Services));
    }
}

fn name(object: &Object) -> (Box<str>, Box<str>) {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

fn put(all: &mut BTreeMap<(Box<str>, Box<str>), Service>, object: Object) {
    let name = name(&object);
    let ip = object.spec.cluster_ip;
    if matches!(&*ip, "" | "None") {
        all.remove(&name);
        return;
    }
    let ports = object.spec.ports.into_iter().map(|port| (port.name, port.protocol, port.port));
    all.insert(name, Service { ip, ports: ports.collect() });
}

impl ServicesFacts {
    /// Those that pods of these namespaces are told of; None before they are known.
    pub fn of(&self, namespaces: &BTreeSet<Box<str>>) -> Option<Vec<Object>> {
        let told = |(namespace, name): &(Box<str>, Box<str>)| {
            namespaces.contains(namespace) || (&**namespace, &**name) == MASTER
        };
        let all = self.all.iter().filter(|(name, _)| told(name)).map(|((namespace, name), it)| {
            let mut object = Object::default();
            (object.metadata.namespace, object.metadata.name) = (namespace.clone(), name.clone());
            object.spec.cluster_ip = it.ip.clone();
            let ports = it.ports.iter().map(|(name, protocol, port)| ServicePort {
                name: name.clone(),
                protocol: protocol.clone(),
                port: *port,
            });
            object.spec.ports = ports.collect();
            object
        });
        self.read.then(|| all.collect())
    }

    /// The variables for a container of this pod. Errors: a pod of the API server waits until they are known.
    pub fn variables(&self, pod: &Pod) -> Result<Env, ConfigError> {
        if self.follows && !self.read && !is_static(pod) {
            let text = "services have not yet been read at least once, cannot construct envvars";
            return Err(ConfigError(text.into()));
        }
        let namespace = &*pod.metadata.namespace;
        let links = pod.spec.enable_service_links.unwrap_or(true);
        let mut env = Env::new();
        // A service of the pod's own namespace hides the API server's of the same name.
        if let Some(master) = self.all.get(&(MASTER.0.into(), MASTER.1.into())) {
            add(&mut env, MASTER.1, master);
        }
        if links {
            let from = (Box::from(namespace), Box::from(""));
            let own = self.all.range(from..).take_while(|((of, _), _)| **of == *namespace);
            for ((_, name), service) in own {
                add(&mut env, name, service);
            }
        }
        Ok(env)
    }
}

fn add(env: &mut Env, name: &str, service: &Service) {
    let Some((_, _, first)) = service.ports.first() else { return };
    let shout = |text: &str| text.to_uppercase().replace('-', "_");
    let (name, ip) = (shout(name), &service.ip);
    let host = if ip.contains(':') { format!("[{ip}]") } else { String::from(&**ip) };
    let mut put = |key: String, value: String| {
        env.insert(key, value.into());
    };
    put(format!("{name}_SERVICE_HOST"), String::from(&**ip));
    put(format!("{name}_SERVICE_PORT"), format!("{first}"));
    for (index, (port_name, protocol, port)) in service.ports.iter().enumerate() {
        if !port_name.is_empty() {
            put(format!("{name}_SERVICE_PORT_{}", shout(port_name)), format!("{port}"));
        }
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        let low = protocol.to_lowercase();
        let url = format!("{low}://{host}:{port}");
        if index == 0 {
            put(format!("{name}_PORT"), url.clone());
        }
        let prefix = format!("{name}_PORT_{port}_{}", protocol.to_uppercase());
        put(format!("{prefix}_PROTO"), low);
        put(format!("{prefix}_PORT"), format!("{port}"));
        put(format!("{prefix}_ADDR"), String::from(&**ip));
        put(prefix, url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use steplet_api::json;

    #[test]
    fn variables_of_services() {
        let mut facts = ServicesFacts { follows: true, read: true, ..ServicesFacts::default() };
        for text in [
            r#"{"metadata":{"name":"kubernetes","namespace":"default"},
                "spec":{"clusterIP":"10.96.0.1","ports":[{"name":"https","port":443}]}}"#,
            r#"{"metadata":{"name":"my-web","namespace":"ns"},
                "spec":{"clusterIP":"fd00::9","ports":[{"port":80,"protocol":"UDP"}]}}"#,
            r#"{"metadata":{"name":"none","namespace":"ns"},
                "spec":{"clusterIP":"None","ports":[{"port":80}]}}"#,
            r#"{"metadata":{"name":"far","namespace":"other"},
                "spec":{"clusterIP":"10.96.0.7","ports":[{"port":80}]}}"#,
        ] {
            put(&mut facts.all, json::from_slice(text.as_bytes()).expect("a table"));
        }
        let check = |spec: &str, want: &[(&str, &str)], count: usize| {
            let env = facts.variables(&pod(spec)).expect("they are read");
            for (name, value) in want {
                assert_eq!(env.get(*name).and_then(|v| v.plain()), Some(*value), "{name}");
            }
            assert_eq!(env.len(), count, "{env:?}");
        };
        let master = [
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
            ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
        ];
        check(r#"{"enableServiceLinks":false}"#, &master, 8);
        check("{}", &master, 15);
        check("{}", &[("MY_WEB_PORT_80_UDP", "udp://[fd00::9]:80")], 15);
        facts.read = false;
        assert!(facts.variables(&pod("{}")).is_err());
    }
}
