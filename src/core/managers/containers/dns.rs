//! The resolver configuration of a pod.
//!
//! Upstream: pkg/kubelet/network/dns, v1.36. Two differences, both on purpose:
//! doubles are folded before anything is cut, so that they do not fill the few slots (k/k#82756),
//! and options keep the order in which they were named, where upstream's order is random.

use crate::managers::containers::ConfigError;
use crate::managers::containers::security::pod_label;
use crate::settings::Settings;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::cri::DnsConfig;
use steplet_api::pod::{Pod, PodDnsConfig, dns_policy};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LINE_BYTES_MAX: usize = 2048;
/// A DNS name; longer ones abort some resolvers.
const SEARCH_BYTES_MAX: usize = 253;
/// How pods of a cluster resolve short names of services.
const CLUSTER_OPTION: &str = "ndots:5";

/// A pod's resolver configuration and what the pod's user is to be warned of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDns {
    pub config: DnsConfig,
    pub warnings: Vec<DnsWarning>,
}

/// A Warning event of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsWarning {
    pub reason: &'static str,
    pub message: String,
}

/// `resolv_conf` is the content of the node's resolver file, none if it could not be read;
/// `host_ips` are the node's addresses.
pub fn pod_dns(
    pod: &Pod,
    settings: &Settings,
    resolv_conf: Option<&str>,
    host_ips: &[String],
) -> Result<PodDns, ConfigError> {
    let mut warnings = Vec::new();
    let mut config = match policy(pod, settings) {
        Policy::None => DnsConfig::default(),
        Policy::Cluster => {
            let host = resolv_conf.map_or_else(|| Ok(DnsConfig::default()), parse_resolv_conf)?;
            DnsConfig {
                servers: settings.cluster_dns.clone(),
                searches: cluster_searches(pod, settings, host.searches),
                options: [CLUSTER_OPTION.to_string()].into(),
            }
        }
        Policy::Default { fallback } => {
            if fallback {
                warnings.push(missing_cluster_dns(pod));
            }
            host_config(settings, resolv_conf, host_ips)?
        }
    };
    if let Some(own) = pod.spec.dns_config.as_deref() {
        merge(&mut config, own);
    }
    config.servers = without_doubles(config.servers);
    config.searches = without_doubles(config.searches);
    warnings.extend(cut_servers(&mut config.servers));
    warnings.extend(cut_searches(&mut config.searches));
    Ok(PodDns { config, warnings })
}

/// Reads a resolver file: nameserver lines add up, of search lines the last one counts, of options
/// the last value of each name.
pub fn parse_resolv_conf(text: &str) -> Result<DnsConfig, ConfigError> {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => match fields.next() {
                Some(server) => config.servers.push(server.to_string()),
                None => {
                    return Err(ConfigError(
                        "Encountered error while parsing resolv conf file. Error: nameserver \
                         list is empty "
                            .into(),
                    ));
                }
            },
            Some("search") => {
                let names = fields.filter(|name| *name != ".");
                let names = names.map(|name| name.strip_suffix('.').unwrap_or(name).to_string());
                config.searches = names.collect();
            }
            Some("options") => {
                fields.for_each(|option| set_option(&mut config.options, option.to_string()));
            }
            _ => {}
        }
    }
    Ok(config)
}

enum Policy {
    None,
    Cluster,
    /// `fallback`: the pod wants the cluster's, and the node knows none.
    Default {
        fallback: bool,
    },
}

fn policy(pod: &Pod, settings: &Settings) -> Policy {
    let of_cluster = match &*pod.spec.dns_policy {
        dns_policy::NONE => return Policy::None,
        dns_policy::DEFAULT => false,
        dns_policy::CLUSTER_FIRST => !pod.spec.host_network,
        _ => true,
    };
    match of_cluster {
        true if !settings.cluster_dns.is_empty() => Policy::Cluster,
        fallback => Policy::Default { fallback },
    }
}

fn missing_cluster_dns(pod: &Pod) -> DnsWarning {
    DnsWarning {
        reason: "MissingClusterDNS",
        message: format!(
            "pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod \
             using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
            pod_label(pod)
        ),
    }
}

fn host_config(
    settings: &Settings,
    resolv_conf: Option<&str>,
    host_ips: &[String],
) -> Result<DnsConfig, ConfigError> {
    if !settings.resolv_conf.is_empty() {
        let path = &settings.resolv_conf;
        return match resolv_conf {
            Some(text) => parse_resolv_conf(text),
            None => Err(ConfigError(format!("open {path}: no such file or directory"))),
        };
    }
    // No resolver wanted: without a server, programs ask the local machine by themselves.
    let local = host_ips.iter().map(|ip| if ip.contains(':') { "::1" } else { "127.0.0.1" });
    let mut servers: Vec<String> = local.map(str::to_string).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".into());
    }
    Ok(DnsConfig { servers, searches: [".".into()].into(), options: Vec::new() })
}

fn cluster_searches(pod: &Pod, settings: &Settings, host: Vec<String>) -> Vec<String> {
    let domain = &settings.cluster_domain;
    if domain.is_empty() {
        return host;
    }
    let namespace = &pod.metadata.namespace;
    let cluster =
        [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_string()];
    cluster.into_iter().chain(host).collect()
}

fn merge(config: &mut DnsConfig, own: &PodDnsConfig) {
    config.servers.extend(own.nameservers.iter().map(|server| server.to_string()));
    config.searches.extend(own.searches.iter().map(|search| search.to_string()));
    for option in &own.options {
        let text = match option.value.as_deref().unwrap_or_default() {
            "" => option.name.to_string(),
            value => format!("{}:{value}", option.name),
        };
        set_option(&mut config.options, text);
    }
}

/// Adds an option, or puts it in the place of the one with its name.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_string();
    match options.iter_mut().find(|old| name(old) == name(&option)) {
        Some(old) => *old = option,
        None => options.push(option),
    }
}

fn without_doubles(list: Vec<String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::with_capacity(list.len());
    for item in list {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn cut_servers(servers: &mut Vec<String>) -> Option<DnsWarning> {
    if servers.len() <= NAMESERVERS_MAX {
        return None;
    }
    servers.truncate(NAMESERVERS_MAX);
    Some(forming(format!(
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: {}",
        servers.join(" ")
    )))
}

fn cut_searches(searches: &mut Vec<String>) -> Option<DnsWarning> {
    let before = searches.len();
    searches.truncate(SEARCHES_MAX);
    searches.retain(|search| search.len() <= SEARCH_BYTES_MAX);
    let mut line = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    while line > SEARCH_LINE_BYTES_MAX {
        line = line.saturating_sub(searches.pop().map_or(line, |last| last.len() + 1));
    }
    if searches.len() == before {
        return None;
    }
    Some(forming(format!(
        "Search Line limits were exceeded, some search paths have been omitted, the applied \
         search line is: {}",
        searches.join(" ")
    )))
}

fn forming(message: String) -> DnsWarning {
    DnsWarning { reason: "DNSConfigForming", message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use crate::managers::sample::settings;

    fn text(config: &DnsConfig) -> String {
        let DnsConfig { servers, searches, options } = config;
        format!("{} | {} | {}", servers.join(" "), searches.join(" "), options.join(" "))
    }

    fn cluster() -> Settings {
        Settings {
            cluster_dns: ["10.96.0.10".into()].into(),
            cluster_domain: "cluster.local".into(),
            ..settings()
        }
    }

    const FILE: &str = "# the node's\nnameserver 192.0.2.53\nsearch example. lan\noptions rotate\n";

    #[test]
    fn policies() {
        fn check(settings: Settings, spec: &str, want: &str) {
            let pod = pod(&format!(r#"{{{spec}"containers":[]}}"#));
            let ips = ["192.0.2.10".into(), "2001:db8::10".into()];
            let got = pod_dns(&pod, &settings, Some(FILE), &ips).unwrap();
            assert_eq!(text(&got.config), want, "{spec}");
        }
        const CLUSTER: &str = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local \
             example lan | ndots:5";
        const HOST: &str = "192.0.2.53 | example lan | rotate";
        check(cluster(), r#""dnsPolicy":"ClusterFirst","#, CLUSTER);
        check(cluster(), r#""dnsPolicy":"ClusterFirst","hostNetwork":true,"#, HOST);
        check(cluster(), r#""dnsPolicy":"ClusterFirstWithHostNet","hostNetwork":true,"#, CLUSTER);
        check(cluster(), r#""dnsPolicy":"Default","#, HOST);
        check(cluster(), r#""dnsPolicy":"None","#, " |  | ");
        check(settings(), r#""dnsPolicy":"ClusterFirst","#, HOST);
        let none = || Settings { resolv_conf: String::new(), ..settings() };
        check(none(), r#""dnsPolicy":"Default","#, "127.0.0.1 ::1 | . | ");
        check(
            cluster(),
            r#""dnsPolicy":"ClusterFirst","dnsConfig":{"nameservers":["192.0.2.1","10.96.0.10"],
                "searches":["lan","own"],
                "options":[{"name":"ndots","value":"2"},{"name":"edns0"}]},"#,
            "10.96.0.10 192.0.2.1 | ns.svc.cluster.local svc.cluster.local cluster.local example \
             lan own | ndots:2 edns0",
        );
    }

    #[test]
    fn the_fallback_is_told() {
        let pod = pod(r#"{"dnsPolicy":"ClusterFirst","containers":[]}"#);
        let got = pod_dns(&pod, &settings(), Some(FILE), &[]).unwrap();
        assert_eq!(
            got.warnings,
            [DnsWarning {
                reason: "MissingClusterDNS",
                message: "pod: \"p_ns(u)\". kubelet does not have ClusterDNS IP configured and \
                    cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" \
                    policy."
                    .into(),
            }]
        );
    }

    #[test]
    fn resolver_files() {
        fn check(file: &str, want: &str) {
            let got = parse_resolv_conf(file).map(|config| text(&config));
            assert_eq!(got.unwrap_or_else(|e| e.0), want, "{file}");
        }
        check("", " |  | ");
        check("nameserver 127.0.0.53\n", "127.0.0.53 |  | ");
        check(" nameserver\t192.0.2.1 # x\r\n;c\n#nameserver 192.0.2.2\n", "192.0.2.1 |  | ");
        check("search a b\nsearch c.\n", " | c | ");
        check("search .\n", " |  | ");
        check("options ndots:1 rotate\noptions ndots:3\n", " |  | ndots:3 rotate");
        check("domain example\nsortlist x\n", " |  | ");
        check(
            "nameserver\n",
            "Encountered error while parsing resolv conf file. Error: nameserver list is empty ",
        );
    }

    #[test]
    fn a_missing_file_stops_only_those_who_need_it() {
        fn check(policy: &str, settings: Settings, want: Result<&str, &str>) {
            let pod = pod(&format!(r#"{{"dnsPolicy":"{policy}","containers":[]}}"#));
            let got = pod_dns(&pod, &settings, None, &[]).map(|dns| text(&dns.config));
            assert_eq!(got.as_deref().map_err(|e| &*e.0), want, "{policy}");
        }
        check("Default", settings(), Err("open /etc/resolv.conf: no such file or directory"));
        check("None", settings(), Ok(" |  | "));
        check(
            "ClusterFirst",
            cluster(),
            Ok("10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local | ndots:5"),
        );
    }

    #[test]
    fn limits() {
        fn check(file: &str, servers: usize, searches: usize, warnings: &[&str]) {
            let pod = pod(r#"{"dnsPolicy":"Default","containers":[]}"#);
            let got = pod_dns(&pod, &settings(), Some(file), &[]).unwrap();
            assert_eq!(got.config.servers.len(), servers, "{file}");
            assert_eq!(got.config.searches.len(), searches, "{file}");
            assert!(got.warnings.iter().all(|warning| warning.reason == "DNSConfigForming"));
            let messages: Vec<_> = got.warnings.iter().map(|w| &*w.message).collect();
            assert_eq!(messages, warnings, "{file}");
        }
        let search = |count: usize, length: usize| {
            let names = (0..count).map(|i| format!("{i:0length$}"));
            format!("search {}\n", names.collect::<Vec<_>>().join(" "))
        };
        check(&search(7, 5), 0, 7, &[]);
        check(&search(32, 63), 0, 32, &[]);
        let kept = (0..32).map(|i| format!("{i:05}")).collect::<Vec<_>>().join(" ");
        let text = "Search Line limits were exceeded, some search paths have been omitted, the \
             applied search line is: ";
        check(&search(33, 5), 0, 32, &[&format!("{text}{kept}")]);
        // 2048 characters pass, 2049 do not.
        check(&format!("{} {}\n", search(8, 226).trim_end(), "x".repeat(232)), 0, 9, &[]);
        let kept = (0..8).map(|i| format!("{i:0226}")).collect::<Vec<_>>().join(" ");
        check(
            &format!("{} {}\n", search(8, 226).trim_end(), "x".repeat(233)),
            0,
            8,
            &[&format!("{text}{kept}")],
        );
        check(&format!("search a {} b\n", "y".repeat(254)), 0, 2, &[&format!("{text}a b")]);
        // Doubles do not use up slots.
        let double = "nameserver 8.8.8.8\n".repeat(2);
        check(&format!("{double}nameserver 192.0.2.1\nnameserver 192.0.2.2\n"), 3, 0, &[]);
        check(
            "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n\
             nameserver 192.0.2.4\n",
            3,
            0,
            &["Nameserver limits were exceeded, some nameservers have been omitted, the applied \
               nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3"],
        );
    }
}
