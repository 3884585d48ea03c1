//! The environment of a container, and what is expanded from it.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go, pkg/fieldpath and pkg/api/v1/resource, v1.36. A missing object or
//! key is an error in upstream's words, unless it is optional. Variables are kept sorted by name.

use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::containers::expansion::{Env, Text, expand};
use crate::managers::volumes::objects::Missing;
use crate::managers::volumes::payload::Given;
use crate::sealed::Sealed;
use crate::settings::Settings;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::container::{
    Container, EnvFromSource, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
};
use steplet_api::pod::{Pod, ResourceList, resource};
use steplet_api::pod_facts::pod_level_resources;
use steplet_api::quantity::{Format, Quantity};

/// All variables of a container. A value may refer to those before it.
pub fn environment(
    pod: &Pod,
    container: &Container,
    pod_ips: &[&str],
    given: &Given<'_>,
) -> Result<Env, ConfigError> {
    let mut env = given.services.variables(pod)?;
    for source in &container.env_from {
        add_all(&mut env, pod, source, given)?;
    }
    for variable in &container.env {
        let value = match variable.value_from.as_deref() {
            Some(source) if variable.value.is_empty() => {
                match source_value(pod, container, source, pod_ips, given)? {
                    Some(value) => value,
                    None => continue,
                }
            }
            _ => expand(&variable.value, &env)?,
        };
        env.insert(variable.name.to_string(), value);
    }
    Ok(env)
}

/// All keys of a ConfigMap or a Secret.
fn add_all(
    env: &mut Env,
    pod: &Pod,
    source: &EnvFromSource,
    given: &Given<'_>,
) -> Result<(), ConfigError> {
    let (objects, namespace) = (given.volumes.objects(), &pod.metadata.namespace);
    // Keys of objects are tame, but the prefix is not.
    let named = |key: &str| {
        let name = format!("{}{key}", source.prefix);
        let good = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
        name.bytes().all(good).then_some(name)
    };
    if let Some(reference) = &source.config_map_ref {
        let map = objects.config_map(namespace, &reference.name);
        let all = found(map, reference.optional)?.into_iter().flat_map(|map| &map.data);
        env.extend(all.filter_map(|(key, value)| Some((named(key)?, (&**value).into()))));
    } else if let Some(reference) = &source.secret_ref {
        let secret = objects.secret(namespace, &reference.name);
        let all = found(secret, reference.optional)?.into_iter().flat_map(|it| &it.data);
        env.extend(all.filter_map(|(key, seal)| Some((named(key)?, secret_text(*seal)))));
    }
    Ok(())
}

/// None: it is not there, and need not be.
fn found<T>(
    object: Result<&T, Missing>,
    optional: Option<bool>,
) -> Result<Option<&T>, ConfigError> {
    match object {
        Ok(object) => Ok(Some(object)),
        Err(Missing::Absent(_)) if optional == Some(true) => Ok(None),
        Err(missing) => Err(missing.into_error()),
    }
}

fn secret_text(seal: u64) -> Text {
    Text::secret(Sealed::numbered(seal))
}

/// None: it is optional, and there is none.
fn source_value(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    pod_ips: &[&str],
    given: &Given<'_>,
) -> Result<Option<Text>, ConfigError> {
    let (objects, namespace) = (given.volumes.objects(), &pod.metadata.namespace);
    let Given { settings, machine, .. } = *given;
    if let Some(field) = &source.field_ref {
        return field_value(pod, field, pod_ips, machine).map(|it| Some(it.into()));
    }
    if let Some(field) = &source.resource_field_ref {
        let value = resource_value(pod, Some(container), field, settings, machine);
        return value.map(|it| Some(it.into()));
    }
    let (value, key, kind) = if let Some(key) = &source.config_map_key_ref {
        let map = found(objects.config_map(namespace, &key.name), key.optional)?;
        let value = map.and_then(|map| map.data.get(&key.key)).map(|value| (&**value).into());
        (value, key, "ConfigMap")
    } else if let Some(key) = &source.secret_key_ref {
        let secret = found(objects.secret(namespace, &key.name), key.optional)?;
        let seal = secret.and_then(|secret| secret.data.get(&key.key));
        (seal.copied().map(secret_text), key, "Secret")
    } else if let Some(key) = &source.file_key_ref {
        return Err(ConfigError(format!(
            "fileKeyRef is not supported yet: key {:?} of volume {:?}",
            key.key, key.volume_name
        )));
    } else {
        return Ok(Some(Text::default()));
    };
    if value.is_none() && key.optional != Some(true) {
        let text = format!("couldn't find key {} in {kind} {namespace}/{}", key.key, key.name);
        return Err(ConfigError(text));
    }
    Ok(value)
}

/// A field of a pod that a volume can have (ExtractFieldPathAsString in pkg/fieldpath).
pub fn metadata_field(pod: &Pod, path: &str) -> Result<String, ConfigError> {
    if !path.starts_with("metadata.") {
        return Err(ConfigError(format!("unsupported fieldPath: {path}")));
    }
    let field = ObjectFieldSelector { field_path: path.into(), ..Default::default() };
    field_value(pod, &field, &[], &Machine::default())
}

/// A field of the pod itself.
fn field_value(
    pod: &Pod,
    field: &ObjectFieldSelector,
    pod_ips: &[&str],
    machine: &Machine,
) -> Result<String, ConfigError> {
    if !matches!(&*field.api_version, "" | "v1") {
        return Err(ConfigError(format!("unsupported pod version: {}", field.api_version)));
    }
    let meta = &pod.metadata;
    let path = &*field.field_path;
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => {
                let text = format!("field label does not support subscript: {path}");
                return Err(ConfigError(text));
            }
        };
        return Ok(map.get(key).map(|value| value.to_string()).unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => meta.name.to_string(),
        "metadata.namespace" => meta.namespace.to_string(),
        "metadata.uid" => meta.uid.to_string(),
        "metadata.labels" => lines(&meta.labels),
        "metadata.annotations" => lines(&meta.annotations),
        "spec.nodeName" | "spec.host" => pod.spec.node_name.to_string(),
        "spec.serviceAccountName" => pod.spec.service_account_name.to_string(),
        "status.hostIP" => machine.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => machine.host_ips.join(","),
        "status.podIP" => pod_ips.first().map(|ip| ip.to_string()).unwrap_or_default(),
        "status.podIPs" => pod_ips.join(","),
        _ => return Err(ConfigError(format!("field label not supported: {path}"))),
    })
}

/// `key="value"` lines, sorted by key, values quoted as Go quotes.
fn lines(map: &BTreeMap<Box<str>, Box<str>>) -> String {
    let lines: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    lines.join("\n")
}

fn go_quote(text: &str) -> String {
    let mut out = String::from('"');
    for sign in text.chars() {
        match sign {
            '"' | '\\' => out.extend(['\\', sign]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' | '\u{7f}' => out.push_str(&format!("\\x{:02x}", sign as u32)),
            '\u{80}'..='\u{a0}' | '\u{feff}' => out.push_str(&format!("\\u{:04x}", sign as u32)),
            _ => out.push(sign),
        }
    }
    out.push('"');
    out
}

/// What a container of the pod, `own` unless the field names another, may use: in units of the divisor and rounded up. A limit that is
/// not set is the pod's own, or what the node has to give.
pub fn resource_value(
    pod: &Pod,
    own: Option<&Container>,
    field: &ResourceFieldSelector,
    settings: &Settings,
    machine: &Machine,
) -> Result<String, ConfigError> {
    let name = &*field.container_name;
    let container = match own {
        Some(own) if name.is_empty() => own,
        _ => {
            let mut all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
            all.find(|container| &*container.name == name)
                .ok_or_else(|| ConfigError(format!("container {name} not found")))?
        }
    };
    let unsupported =
        || ConfigError(format!("unsupported container resource : {}", field.resource));
    let (side, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let known = matches!(name, resource::CPU | resource::MEMORY | resource::EPHEMERAL_STORAGE)
        || name.starts_with(resource::HUGEPAGES_PREFIX);
    let set = match side {
        "limits" if known => amount(&container.resources.limits, name)
            .or_else(|| pod_level_resources(&pod.spec).and_then(|set| amount(&set.limits, name)))
            .or_else(|| allocatable(name, settings, machine)),
        "requests" if known => container.resources.requests.get(name).copied(),
        _ => return Err(unsupported()),
    };
    let set = set.unwrap_or_default();
    let one = Quantity::new(1, Format::DecimalSi);
    let divisor = if field.divisor.is_zero() { one } else { field.divisor };
    let (amount, divisor) = if name == resource::CPU {
        (set.milli_value(), divisor.milli_value())
    } else {
        (set.value(), divisor.value())
    };
    if amount < 0 || divisor <= 0 {
        return Err(unsupported());
    }
    Ok((amount as u64).div_ceil(divisor as u64).to_string())
}

/// The amount of a resource, none when it is absent or zero.
fn amount(list: &ResourceList, name: &str) -> Option<Quantity> {
    list.get(name).filter(|quantity| !quantity.is_zero()).copied()
}

/// What all pods together may use, by the settings.
fn allocatable(name: &str, settings: &Settings, machine: &Machine) -> Option<Quantity> {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    match name {
        resource::CPU => {
            let milli =
                (u64::from(machine.cpus) * 1000).saturating_sub(settings.reserved_cpu_milli);
            Some(Quantity::from_milli(signed(milli), Format::DecimalSi))
        }
        resource::MEMORY => {
            let bytes = machine.memory_bytes.saturating_sub(settings.reserved_memory_bytes);
            Some(Quantity::new(signed(bytes), Format::BinarySi))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::containers::services::ServicesFacts;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};
    use crate::managers::volumes::VolumesFacts;
    use crate::managers::volumes::objects::{Key, ObjectsFacts};

    fn of(container: &str) -> Result<Env, ConfigError> {
        with(&VolumesFacts::default(), container)
    }

    fn with(volumes: &VolumesFacts, container: &str) -> Result<Env, ConfigError> {
        let mut pod = pod(&format!(
            r#"{{"nodeName":"n1","serviceAccountName":"default","containers":[{{"name":"c",
            {container}}},{{"name":"other","resources":{{"requests":{{"cpu":"2"}}}}}}]}}"#
        ));
        let meta = &mut pod.metadata;
        meta.labels.insert("app".into(), "twin".into());
        meta.annotations.insert("note".into(), "a \"b\" c".into());
        meta.annotations.insert("line".into(), "x\ny\\".into());
        let ips = ["10.1.0.5", "fd00::5"];
        let (settings, machine) = (&settings(), &machine());
        environment(
            &pod,
            &pod.spec.containers[0],
            &ips,
            &Given { volumes, settings, machine, services: &ServicesFacts::default() },
        )
    }

    fn text(value: &Text) -> String {
        value.plain().unwrap_or("a secret").into()
    }

    #[test]
    fn values_see_those_before_them() {
        let env = of(r#""env":[{"name":"E_A","value":"one"},{"name":"E_B","value":"$(E_A)-two"},
            {"name":"E_C","value":"$(E_LATE)"},{"name":"E_D","value":"$$(E_A) $$$(E_A) $(NOPE)"},
            {"name":"E_LATE","value":"late"},{"name":"E_A","value":"$(E_A)+"},{"name":"E_0"}]"#)
        .unwrap();
        let got: Vec<_> =
            env.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        assert_eq!(
            got,
            [
                "E_0=",
                "E_A=one+",
                "E_B=one-two",
                "E_C=$(E_LATE)",
                "E_D=$(E_A) $one $(NOPE)",
                "E_LATE=late",
            ]
        );
    }

    #[test]
    fn fields_of_the_pod() {
        fn check(path: &str, want: Result<&str, &str>) {
            let got = of(&format!(
                r#""env":[{{"name":"X","valueFrom":{{"fieldRef":{{"fieldPath":"{path}"}}}}}}]"#
            ));
            let got = got.map(|env| text(&env["X"])).map_err(|e| e.0);
            assert_eq!(got.as_deref().map_err(|e| &**e), want, "{path}");
        }
        check("metadata.name", Ok("p"));
        check("metadata.namespace", Ok("ns"));
        check("metadata.uid", Ok("u"));
        check("metadata.labels['app']", Ok("twin"));
        check("metadata.annotations['note']", Ok("a \"b\" c"));
        check("metadata.annotations['none']", Ok(""));
        check("metadata.annotations", Ok("line=\"x\\ny\\\\\"\nnote=\"a \\\"b\\\" c\""));
        check("spec.nodeName", Ok("n1"));
        check("spec.serviceAccountName", Ok("default"));
        check("status.hostIP", Ok("192.0.2.10"));
        check("status.hostIPs", Ok("192.0.2.10"));
        check("status.podIP", Ok("10.1.0.5"));
        check("status.podIPs", Ok("10.1.0.5,fd00::5"));
        check(
            "spec.nodeName['x']",
            Err("field label does not support subscript: spec.nodeName['x']"),
        );
        check("spec.shoeSize", Err("field label not supported: spec.shoeSize"));
    }

    #[test]
    fn resources_of_containers() {
        fn check(resource: &str, more: &str, want: Result<&str, &str>) {
            let got = of(&format!(
                r#""resources":{{"requests":{{"cpu":"110m","ephemeral-storage":"1Mi"}},
                    "limits":{{"cpu":"250m","memory":"33Mi","hugepages-2Mi":"4Mi"}}}},
                "env":[{{"name":"X","valueFrom":{{"resourceFieldRef":{{"resource":"{resource}"
                {more}}}}}}}]"#
            ));
            let got = got.map(|env| text(&env["X"])).map_err(|e| e.0);
            assert_eq!(got.as_deref().map_err(|e| &**e), want, "{resource} {more}");
        }
        check("limits.cpu", "", Ok("1"));
        check("limits.cpu", r#","divisor":"1m""#, Ok("250"));
        check("requests.cpu", r#","divisor":"1m""#, Ok("110"));
        check("limits.memory", "", Ok("34603008"));
        check("limits.memory", r#","divisor":"1Mi""#, Ok("33"));
        check("limits.memory", r#","divisor":"10Mi""#, Ok("4"));
        check("requests.ephemeral-storage", r#","divisor":"1Ki""#, Ok("1024"));
        check("limits.hugepages-2Mi", "", Ok("4194304"));
        check("requests.memory", "", Ok("0"));
        // Not limited: what the node has.
        check("limits.cpu", r#","containerName":"other""#, Ok("4"));
        check("limits.memory", r#","containerName":"other","divisor":"1Mi""#, Ok("1000"));
        check("requests.cpu", r#","containerName":"other""#, Ok("2"));
        check("limits.cpu", r#","containerName":"x""#, Err("container x not found"));
        check("limits.gpu", "", Err("unsupported container resource : limits.gpu"));
        check("cpu", "", Err("unsupported container resource : cpu"));
    }

    #[test]
    fn without_an_api_server() {
        fn check(container: &str, want: &str) {
            assert_eq!(of(container).unwrap_err().0, want, "{container}");
        }
        check(
            r#""env":[{"name":"X","valueFrom":{"configMapKeyRef":{"name":"m","key":"k"}}}]"#,
            "couldn't get configMap ns/m, no kubeClient defined",
        );
        check(
            r#""env":[{"name":"X","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]"#,
            "couldn't get secret ns/s, no kubeClient defined",
        );
        check(
            r#""envFrom":[{"secretRef":{"name":"s"}}]"#,
            "couldn't get secret ns/s, no kubeClient defined",
        );
        check(
            r#""env":[{"name":"X","valueFrom":
                {"fileKeyRef":{"volumeName":"v","path":"f","key":"k"}}}]"#,
            "fileKeyRef is not supported yet: key \"k\" of volume \"v\"",
        );
    }

    #[test]
    fn objects_of_the_api() {
        let maps = [r#"{"metadata":{"name":"m"},"data":{"k":"$(X)","A":"of m"}}"#];
        let secrets = [r#"{"metadata":{"name":"s"},"data":{"k":7,"A":8}}"#];
        let gone = [Key::config_map("ns", "gone"), Key::secret("ns", "gone")];
        let objects = ObjectsFacts::of(&maps, &secrets, &gone);
        let facts = VolumesFacts::of(objects, Default::default());
        let check = |container: &str, want: Result<&[&str], &str>| {
            let show = |(name, value): (&String, &Text)| {
                let seals = value.clone().into_parts();
                let value = value.plain().map_or(format!("{seals:?}"), String::from);
                format!("{name}={value}")
            };
            let got = with(&facts, container).map(|env| env.iter().map(show).collect::<Vec<_>>());
            let got = got.map_err(|e| e.0);
            let want = want.map(|w| w.iter().map(|w| w.to_string()).collect::<Vec<_>>());
            assert_eq!(got, want.map_err(String::from));
        };
        let env = |source: &str| format!(r#""env":[{{"name":"X","valueFrom":{{{source}}}}}]"#);
        let of = |kind: &str, name: &str, key: &str, more: &str| {
            env(&format!(r#""{kind}KeyRef":{{"name":"{name}","key":"{key}"{more}}}"#))
        };
        const OPTIONAL: &str = r#","optional":true"#;
        check(&of("configMap", "m", "k", ""), Ok(&["X=$(X)"]));
        check(&of("secret", "s", "k", ""), Ok(&["X=[Decoded(sealed:7)]"]));
        check(&of("configMap", "m", "z", ""), Err("couldn't find key z in ConfigMap ns/m"));
        check(&of("secret", "s", "z", ""), Err("couldn't find key z in Secret ns/s"));
        check(&of("configMap", "gone", "k", ""), Err("configmap \"gone\" not found"));
        check(&of("secret", "gone", "k", ""), Err("secret \"gone\" not found"));
        let late = "failed to sync secret cache: timed out waiting for the condition";
        check(&of("secret", "late", "k", OPTIONAL), Err(late));
        for (kind, name) in [("configMap", "m"), ("configMap", "gone"), ("secret", "gone")] {
            check(&of(kind, name, "z", OPTIONAL), Ok(&[]));
        }
        // The later wins, and a variable of its own name wins over all.
        check(
            r#""envFrom":[{"configMapRef":{"name":"m"}},{"prefix":"P_","secretRef":{"name":"s"}},
                {"secretRef":{"name":"gone","optional":true}},{"prefix":"=","secretRef":{"name":"s"}}],
                "env":[{"name":"k","value":"<$(P_A)>$(A)"}]"#,
            Ok(&[
                "A=of m",
                "P_A=[Decoded(sealed:8)]",
                "P_k=[Decoded(sealed:7)]",
                "k=[Plain(b\"<\"), Decoded(sealed:8), Plain(b\">of m\")]",
            ]),
        );
        check(r#""envFrom":[{"secretRef":{"name":"gone"}}]"#, Err("secret \"gone\" not found"));
    }
}
