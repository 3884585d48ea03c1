use super::*;
use std::collections::BTreeMap;
use std::io;

pub(super) struct Fake(pub(super) BTreeMap<String, Vec<u8>>);

impl Files for Fake {
    fn read(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(bytes[..bytes.len().min(most + 1)].to_vec())
    }
    fn walk(&self, _: &str) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn absolute(&self, path: &str) -> io::Result<String> {
        Ok(path.to_owned())
    }
}

fn read(text: &str) -> Result<(ApiServer, Vec<String>), Vec<String>> {
    let files = Fake([("/etc/k/kubelet.conf".to_owned(), text.as_bytes().to_vec())].into());
    let said = |problems: Vec<Problem>| problems.iter().map(Problem::to_string).collect();
    let read = super::read("/etc/k/kubelet.conf", &files);
    read.map(|(access, problems)| (access, said(problems))).map_err(said)
}

/// As kubeadm writes it, with these lines of the cluster and of the user.
fn config(cluster: &str, user: &str) -> String {
    let indented = |text: &str| text.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context:\n    \
         cluster: k\n    user: u\nclusters:\n- name: k\n  cluster:\n    {}\nusers:\n- name: u\n  \
         user:\n    {}\n",
        indented(cluster),
        indented(user),
    )
}

const SERVER: &str = "server: https://10.0.0.1:6443\ncertificate-authority: pki/ca.crt";

#[test]
fn what_kubeadm_writes() {
    let pki = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let user = format!("client-certificate: {pki}\nclient-key: {pki}");
    let data = STANDARD.encode("-----BEGIN");
    let cluster = format!("server: https://10.0.0.1:6443\ncertificate-authority-data: {data}");
    let (access, warnings) = read(&config(&cluster, &user)).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(access.address, api::Address { host: "10.0.0.1".into(), port: 6443 });
    assert_eq!((access.server_name.as_str(), access.prefix.as_str()), ("10.0.0.1", ""));
    let bundle = Pem::Inline("-----BEGIN".to_owned().into());
    assert_eq!(access.authorities, Authorities::Given(bundle));
    let file = || Pem::File(pki.into());
    assert_eq!((access.identity, access.login), (Some((file(), file())), Login::None));
    assert!(access.user_agent.starts_with("steplet/") && access.proxy.is_none());
}

#[test]
fn clusters_of_every_kind() {
    let check = |cluster: &str, see: &dyn Fn(&ApiServer) -> bool| {
        let (access, warnings) = read(&config(cluster, "token: t")).unwrap();
        assert!(see(&access), "{cluster}: {access:?}");
        warnings
    };
    check(SERVER, &|a| a.authorities == Authorities::Given(Pem::File("/etc/k/pki/ca.crt".into())));
    check("server: https://api/k8s/c-1/", &|a| {
        (a.prefix.as_str(), a.address.port) == ("/k8s/c-1", 443)
            && a.authorities == Authorities::System
    });
    check("server: api:6443\ntls-server-name: kubernetes", &|a| a.server_name == "kubernetes");
    check("server: https://[fd00::1]:6443", &|a| a.server_name == "fd00::1");
    check("server: https://api\nproxy-url: http://me:pw@proxy:3128", &|a| {
        a.proxy.as_ref().is_some_and(|p| p.address.port == 3128 && p.authorization.is_some())
    });
    check("server: https://api\ninsecure-skip-tls-verify: true", &|a| {
        a.authorities == Authorities::Everybody
    });
    let warnings = check("server: https://api\ncertificate-autority: x", &|_| true);
    let place = "/etc/k/kubelet.conf:13:5: clusters[0].cluster.certificate-autority: unknown field";
    assert_eq!(warnings, [place]);
}

#[test]
fn users_of_every_kind() {
    let check = |user: &str, want: Login| {
        assert_eq!(read(&config(SERVER, user)).unwrap().0.login, want, "{user}");
    };
    let header = |text: &str| Login::Header(text.to_owned().into());
    check("{}", Login::None);
    check("token: abc", header("Bearer abc"));
    check("username: me\npassword: pw", header("Basic bWU6cHc="));
    check("tokenFile: token", Login::TokenFile("/etc/k/token".into()));
    check("token: abc\ntokenFile: /t", Login::TokenFile("/t".into()));
    let plugin = |command: &str, cluster: Option<&str>| {
        Login::Exec(Box::new(ExecPlugin {
            command: command.into(),
            args: vec!["get".into(), "token".into()],
            env: vec![("A".into(), "b".into())],
            api_version: EXEC_VERSIONS[0].into(),
            cluster: cluster.map(str::to_owned),
            install_hint: "apt install it".into(),
        }))
    };
    let exec = |command: &str, more: &str| {
        format!(
            "exec:\n  command: {command}\n  args: [get, token]\n  env: [{{name: A, value: b}}]\n  \
             apiVersion: client.authentication.k8s.io/v1\n  interactiveMode: Never\n  \
             installHint: apt install it\n{more}"
        )
    };
    check(&exec("aws", ""), plugin("aws", None));
    check(&exec("./bin/login", ""), plugin("/etc/k/bin/login", None));
    let cluster = "server: https://api\nextensions:\n- name: client.authentication.k8s.io/exec\n  \
                   extension: {audience: x}";
    let told = r#"{"config":{"audience":"x"},"server":"https://api"}"#;
    let text = config(cluster, &exec("aws", "  provideClusterInfo: true\n"));
    assert_eq!(read(&text).unwrap().0.login, plugin("aws", Some(told)));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let check = |text: &str, want: &[&str]| {
        let problems = read(text).map(|_| ()).unwrap_err();
        assert_eq!(problems.len(), want.len(), "{problems:?}");
        for (problem, want) in problems.iter().zip(want) {
            assert!(problem.contains(want), "{problem}, not {want}");
        }
    };
    let of = |cluster: &str, user: &str, want: &str| check(&config(cluster, user), &[want]);
    check("", &["is no kubeconfig"]);
    check("a: [", &["kubelet.conf:1:4: unclosed"]);
    let none = config(SERVER, "{}").replace("current-context: c\n", "");
    check(&none, &["current-context: is missing; write current-context: c"]);
    let other = config(SERVER, "{}").replace("current-context: c", "current-context: x");
    check(
        &other,
        &["kubelet.conf:3:1: current-context: names no context of the file; there are c"],
    );
    check(
        &config(SERVER, "{}").replace("user: u", "user: x"),
        &["kubelet.conf:8:5: contexts[0].context.user: names no user of the file; there are u"],
    );
    check(&config(SERVER, "{}").replace("v1", "v2"), &["apiVersion: must be v1, not \"v2\""]);
    of("{}", "{}", "clusters[0].cluster.server: is missing");
    of("server: http://api:8080", "{}", "without TLS, which is not spoken here; write https://api");
    of("server: ftp://api", "{}", "must begin with https://, not \"ftp://\"");
    of("server: https://api:x", "{}", "\"x\" is no port");
    of("server: 1", "{}", "must be a string, not 1; write server: \"1\"");
    of("server: https://api\nproxy-url: socks5://p", "{}", "socks5 proxies are not spoken to");
    let both = "insecure-skip-tls-verify: true";
    of(&format!("{SERVER}\n{both}"), "{}", "cannot be true beside a certificate-authority");
    of("server: https://api\ncertificate-authority-data: '%'", "{}", "is no base64 of a PEM text");
    of(SERVER, "client-certificate: /c", "users[0].user: has a client-certificate without");
    of(SERVER, "client-key: /k", "has a client-key without a client-certificate");
    of(SERVER, "token: t\nusername: me", "has more than one of token, username and exec");
    of(SERVER, "token: 123", "users[0].user.token: must be a string; put it in quotes");
    of(SERVER, "as: root", "users[0].user.as: is not done: a node acts as itself");
    of(SERVER, "auth-provider: {name: gcp}", "its providers are plugins now, see exec");
    check(
        &config(SERVER, "exec: {interactiveMode: Always, apiVersion: v1alpha1}"),
        &[
            "exec: names no command",
            "exec.apiVersion: must be client.authentication.k8s.io/v1 or",
            "a node agent has no terminal",
        ],
    );
    let twice = config(SERVER, "{}") + "- name: u\n  user: {}\n";
    check(&twice, &["users[1]: has the name of another user, and is wanted"]);
}
