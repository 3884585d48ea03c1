//! How a pod is called, and the hosts file that says so.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go, v1.36. A name that is cut must not end
//! in `-` or `.` (k/k#36951).

use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::pods::view::PodView;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use steplet_api::pod::{HostAlias, Pod};

/// Room in the kernel's node name, without and with the domain.
const HOSTNAME_BYTES_MAX: usize = 63;
const FQDN_BYTES_MAX: usize = 64;

/// The host name and DNS domain of a pod; the domain is empty when it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHostname {
    pub hostname: String,
    pub domain: String,
}

/// `cluster_domain` is the configured one, empty for none.
pub fn pod_hostname(pod: &Pod, cluster_domain: &str) -> Result<PodHostname, ConfigError> {
    let spec = &pod.spec;
    let cut = |name: &str| cut_hostname(name, &pod.metadata.name);
    if let Some(name) = spec.hostname_override.as_deref() {
        return Ok(PodHostname { hostname: cut(name)?, domain: String::new() });
    }
    let name = if spec.hostname.is_empty() { &pod.metadata.name } else { &spec.hostname };
    let domain = match &*spec.subdomain {
        "" => String::new(),
        subdomain => format!("{subdomain}.{}.svc.{cluster_domain}", pod.metadata.namespace),
    };
    Ok(PodHostname { hostname: cut(name)?, domain })
}

/// What `hostname` prints inside: the whole name if the pod asks for it, and if it fits.
pub fn kernel_hostname(pod: &Pod, name: &PodHostname) -> Result<String, ConfigError> {
    let PodHostname { hostname, domain } = name;
    if domain.is_empty() || pod.spec.set_hostname_as_fqdn != Some(true) {
        return Ok(hostname.clone());
    }
    let fqdn = format!("{hostname}.{domain}");
    if fqdn.len() > FQDN_BYTES_MAX {
        return Err(ConfigError(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too \
             long ({FQDN_BYTES_MAX} characters is the max, {} characters requested)",
            fqdn.len()
        )));
    }
    Ok(fqdn)
}

/// The addresses of a pod: those of its newest sandbox, one of each family, the node's preferred
/// family first; on the host network those of the node. Empty until the sandbox has one.
pub fn pod_ips<'a>(pod: &Pod, view: Option<&'a PodView>, machine: &'a Machine) -> Vec<&'a str> {
    if pod.spec.host_network {
        return machine.host_ips.iter().map(|ip| &**ip).collect();
    }
    let is_v6 = |ip: &str| ip.contains(':');
    let first_v6 = machine.host_ips.first().is_some_and(|ip| is_v6(ip));
    let ips = view.and_then(PodView::sandbox).map_or(&[][..], |sandbox| &sandbox.ips);
    let of_family = |v6| ips.iter().map(|ip| &**ip).find(|ip| is_v6(ip) == v6);
    of_family(first_v6).into_iter().chain(of_family(!first_v6)).collect()
}

/// The hosts file of a pod with its own network.
pub fn hosts_file(name: &PodHostname, pod_ips: &[&str], aliases: &[HostAlias]) -> String {
    let mut file = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let PodHostname { hostname, domain } = name;
    for ip in pod_ips {
        let line = if domain.is_empty() {
            format!("{ip}\t{hostname}\n")
        } else {
            format!("{ip}\t{hostname}.{domain}\t{hostname}\n")
        };
        file.push_str(&line);
    }
    push_aliases(&mut file, aliases);
    file
}

/// The hosts file of a pod on the host network: the node's own.
pub fn host_network_hosts_file(node_hosts: &str, aliases: &[HostAlias]) -> String {
    let mut file = format!("# Kubernetes-managed hosts file (host network).\n{node_hosts}");
    push_aliases(&mut file, aliases);
    file
}

fn push_aliases(file: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    file.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        writeln!(file, "{}\t{}", alias.ip, alias.hostnames.join("\t")).expect("a string grows");
    }
}

fn cut_hostname(name: &str, pod_name: &str) -> Result<String, ConfigError> {
    if name.len() <= HOSTNAME_BYTES_MAX {
        return Ok(name.to_string());
    }
    let end = (0..=HOSTNAME_BYTES_MAX).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    let cut = name[..end].trim_end_matches(['-', '.']);
    if cut.is_empty() {
        return Err(ConfigError(format!("hostname for pod {pod_name:?} was invalid: {name:?}")));
    }
    Ok(cut.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::machine;
    use crate::managers::sample::{pod, view};

    #[test]
    fn addresses() {
        fn check(host_network: bool, ips: &[&str], host_ips: &[&str], want: &[&str]) {
            let pod = pod(&format!(r#"{{"hostNetwork":{host_network},"containers":[]}}"#));
            let host_ips = host_ips.iter().map(|ip| ip.to_string()).collect();
            let machine = Machine { host_ips, ..machine() };
            let mut view = view("@0");
            view.sandboxes[0].ips = ips.iter().map(|ip| (*ip).into()).collect();
            assert_eq!(
                pod_ips(&pod, Some(&view), &machine),
                want,
                "{ips:?} {host_ips:?}",
                host_ips = machine.host_ips
            );
        }
        check(false, &["10.1.0.5"], &["192.0.2.1"], &["10.1.0.5"]);
        check(false, &["fd00::5", "10.1.0.5"], &["192.0.2.1"], &["10.1.0.5", "fd00::5"]);
        check(false, &["10.1.0.5", "fd00::5"], &["2001:db8::1"], &["fd00::5", "10.1.0.5"]);
        check(false, &["fd00::5", "fd00::6"], &["192.0.2.1"], &["fd00::5"]);
        check(false, &[], &["192.0.2.1"], &[]);
        check(true, &[], &["192.0.2.1", "2001:db8::1"], &["192.0.2.1", "2001:db8::1"]);
    }

    fn named(name: &str, spec: &str) -> Pod {
        let mut pod = pod(&format!(r#"{{{spec}"containers":[]}}"#));
        pod.metadata.name = name.into();
        pod
    }

    #[test]
    fn hostnames() {
        fn check(name: &str, spec: &str, want: &str) {
            let pod = named(name, spec);
            let full = pod_hostname(&pod, "cluster.local").unwrap();
            let kernel = kernel_hostname(&pod, &full).unwrap_or_else(|e| e.0);
            assert_eq!(
                format!("{} {} {kernel}", full.hostname, full.domain),
                want,
                "{name} {spec}"
            );
        }
        check("web", "", "web  web");
        check("web", r#""hostname":"h","#, "h  h");
        check("web", r#""subdomain":"s","#, "web s.ns.svc.cluster.local web");
        check(
            "web",
            r#""hostname":"h","subdomain":"s","setHostnameAsFQDN":true,"#,
            "h s.ns.svc.cluster.local h.s.ns.svc.cluster.local",
        );
        check("web", r#""hostnameOverride":"o.example","subdomain":"s","#, "o.example  o.example");
        // 70 characters of which the 63rd, and more before it, are no end of a name (k/k#36951).
        let long = "a".repeat(60);
        check(&format!("{long}bc-defghij"), "", &format!("{long}bc  {long}bc"));
        check(&format!("{long}b.-defghij"), "", &format!("{long}b  {long}b"));
        check(&format!("{long}bcdefghijk"), "", &format!("{long}bcd  {long}bcd"));
    }

    #[test]
    fn names_that_do_not_fit() {
        let pod = named(
            "web",
            r#""hostname":"a23456789012345678901234567890",
            "subdomain":"b23456789012345678901234567890","setHostnameAsFQDN":true,"#,
        );
        let full = pod_hostname(&pod, "cluster.local").unwrap();
        assert_eq!(
            kernel_hostname(&pod, &full).unwrap_err().0,
            "failed to construct FQDN from pod hostname and cluster domain, FQDN \
             a23456789012345678901234567890.b23456789012345678901234567890.ns.svc.cluster.local is \
             too long (64 characters is the max, 82 characters requested)"
        );
        assert!(pod_hostname(&named(&"-".repeat(70), ""), "").is_err());
    }

    const ALIASES: &str = r#""hostAliases":[{"ip":"192.0.2.1","hostnames":["a","b.example"]},
        {"ip":"192.0.2.2","hostnames":["c"]}],"#;

    #[test]
    fn hosts_of_a_pod() {
        let name = PodHostname { hostname: "web".into(), domain: String::new() };
        let head = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
            ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
            fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
        assert_eq!(hosts_file(&name, &["10.1.0.5"], &[]), format!("{head}10.1.0.5\tweb\n"));
        let name = PodHostname { domain: "s.ns.svc.x".into(), ..name };
        let pod = named("web", ALIASES);
        assert_eq!(
            hosts_file(&name, &["10.1.0.5", "fd00::5"], &pod.spec.host_aliases),
            format!(
                "{head}10.1.0.5\tweb.s.ns.svc.x\tweb\nfd00::5\tweb.s.ns.svc.x\tweb\n\n\
                 # Entries added by HostAliases.\n192.0.2.1\ta\tb.example\n192.0.2.2\tc\n"
            )
        );
    }

    #[test]
    fn hosts_on_the_host_network() {
        let pod = named("web", ALIASES);
        assert_eq!(
            host_network_hosts_file("127.0.0.1 localhost\n", &[]),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
        );
        assert_eq!(
            host_network_hosts_file("127.0.0.1 localhost\n", &pod.spec.host_aliases),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n\
             # Entries added by HostAliases.\n192.0.2.1\ta\tb.example\n192.0.2.2\tc\n"
        );
    }
}
