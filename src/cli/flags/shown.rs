//! The flags in effect, for `/flagz`: what the command line, the files and the defaults came to.

use super::KubeletFlags;
use super::table::{FLAGS, To};
use serde_json::Value;

/// `name=value` lines in order of name. `config` is the effective configuration, without what is secret in it.
pub fn shown(flags: &KubeletFlags, config: &Value) -> String {
    let mut flags = flags.clone();
    let mut lines: Vec<String> = FLAGS
        .iter()
        .filter_map(|flag| {
            let value = match flag.to {
                // Headers are credentials.
                To::Config("staticPodURLHeader") => "CLASSIFIED".to_owned(),
                To::Config(path) => {
                    let pointer = format!("/{}", path.replace('.', "/"));
                    config.pointer(&pointer).map(words).unwrap_or_default()
                }
                To::Text(of) => of(&mut flags).clone(),
                To::Switch(of) => of(&mut flags).to_string(),
                To::Number(of) => of(&mut flags).to_string(),
                To::Span(of) => of(&mut flags).to_string(),
                To::Bytes(of) => of(&mut flags).to_string(),
                To::Labels(of) => {
                    let pairs = of(&mut flags).iter().map(|(key, value)| format!("{key}={value}"));
                    pairs.collect::<Vec<_>>().join(",")
                }
                To::Nowhere | To::Help | To::Version => return None,
            };
            Some(format!("{}={value}\n", flag.name))
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// A value as pflag prints it.
fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(words).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{key}={}", words(value)));
            fields.collect::<Vec<_>>().join(",")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn flags_are_shown_as_they_came_out() {
        let flags = KubeletFlags {
            kubeconfig: "/etc/kubernetes/kubelet.conf".into(),
            node_labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..KubeletFlags::default()
        };
        let config = json!({
            "maxPods": 7,
            "clusterDNS": ["10.96.0.10"],
            "authentication": {"webhook": {"cacheTTL": "2m0s"}},
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
        });
        let all = shown(&flags, &config);
        let check = |line: &str| assert!(all.lines().any(|it| it == line), "{line}: {all}");
        check("authentication-token-webhook-cache-ttl=2m0s");
        check("cluster-dns=[10.96.0.10]");
        check("kubeconfig=/etc/kubernetes/kubelet.conf");
        check("max-pods=7");
        check("node-labels=zone=a");
        check("root-dir=/var/lib/kubelet");
        check("cluster-domain=");
        assert!(all.lines().is_sorted());
    }
}
