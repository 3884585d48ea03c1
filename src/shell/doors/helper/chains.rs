//! The chains of iptables that others count on, kept with the iptables of the machine.
//!
//! Upstream: pkg/kubelet/kubelet_network_linux.go (v1.36): KUBE-FIREWALL keeps strangers from what listens on the
//! loopback only, KUBE-IPTABLES-HINT tells others which of the two iptables is in use here, and the canary shows that
//! nobody has emptied the tables.

use crate::shell::doors::reason;
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use steplet_core::event::{Chains, Fault, FaultKind, Kept};

/// Of one command; of it five seconds for the lock of the tables.
const WITHIN: Duration = Duration::from_secs(10);
const COMPLAINT_MAX: u64 = 4096;
const CANARY: &str = "KUBE-KUBELET-CANARY";
const FIREWALL: &str = "KUBE-FIREWALL";
/// Table and name. The canary that is looked at comes last: what was left half done is done again.
const CHAINS: [(&str, &str); 5] = [
    ("mangle", "KUBE-IPTABLES-HINT"),
    ("filter", FIREWALL),
    ("nat", CANARY),
    ("filter", CANARY),
    ("mangle", CANARY),
];
/// Packets to 127/8 from elsewhere, as route_localnet lets them in, unless they belong to what we know.
const NO_STRANGERS: &[&str] = &[
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

pub fn keep(whole: bool) -> Chains {
    let of = |program: &str, ipv4| family(ipv4, whole, &mut |args| run(program, args));
    Chains { ipv4: of("iptables", true), ipv6: of("ip6tables", false) }
}

/// What a command came to: None is success, a text what it complained of.
type Ran = Option<String>;
type Runs<'a> = dyn FnMut(&[&str]) -> Result<Ran, Fault> + 'a;

fn family(ipv4: bool, whole: bool, run: &mut Runs<'_>) -> Result<Kept, Fault> {
    if !whole && run(&["-t", "mangle", "-S", CANARY])?.is_none() {
        return Ok(Kept::There);
    }
    let mut kept = Kept::There;
    let (canary, others) = CHAINS.split_last().expect("five");
    for (table, chain) in others {
        chain_there(table, chain, &mut kept, run)?;
    }
    if ipv4 {
        rule_there(["-A", FIREWALL], NO_STRANGERS, &mut kept, run)?;
    }
    for chain in ["OUTPUT", "INPUT"] {
        rule_there(["-I", chain], &["-j", FIREWALL], &mut kept, run)?;
    }
    chain_there(canary.0, canary.1, &mut kept, run)?;
    Ok(kept)
}

fn chain_there(table: &str, chain: &str, kept: &mut Kept, run: &mut Runs<'_>) -> Result<(), Fault> {
    if run(&["-t", table, "-S", chain])?.is_some() {
        *kept = Kept::Made;
        must(run(&["-t", table, "-N", chain])?)?;
    }
    Ok(())
}

/// In the table filter; `to` is how it is added, and where.
fn rule_there(
    to: [&str; 2],
    rule: &[&str],
    kept: &mut Kept,
    run: &mut Runs<'_>,
) -> Result<(), Fault> {
    let with = |how, chain| [&["-t", "filter", how, chain], rule].concat();
    if run(&with("-C", to[1]))?.is_some() {
        *kept = Kept::Made;
        must(run(&with(to[0], to[1]))?)?;
    }
    Ok(())
}

fn must(ran: Ran) -> Result<(), Fault> {
    ran.map_or(Ok(()), |message| Err(Fault { kind: FaultKind::Other, message }))
}

/// Errors: the program is not there, or does not end in time.
fn run(program: &str, args: &[&str]) -> Result<Ran, Fault> {
    let child = Command::new(program)
        .args(["-w", "5"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::NotFound => FaultKind::NotFound,
            _ => FaultKind::Other,
        };
        Fault { kind, message: format!("cannot start {program}: {}", reason(&error)) }
    })?;
    let ended = wait(&mut child);
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
    let of = |kind, what: &str| Fault { kind, message: format!("{program}: {what}") };
    match ended {
        Ok(Some(true)) => Ok(None),
        Ok(Some(false)) => {
            let mut said = Vec::new();
            if let Some(complaints) = child.stderr.take() {
                let _ = complaints.take(COMPLAINT_MAX).read_to_end(&mut said);
            }
            let said = String::from_utf8_lossy(&said);
            let said = said.lines().next().unwrap_or("it failed");
            Ok(Some(format!("{program} {}: {said}", args.join(" "))))
        }
        Ok(None) => Err(of(FaultKind::TimedOut, "it did not end in time")),
        Err(error) => Err(of(FaultKind::Other, &reason(&error))),
    }
}

/// Whether it succeeded; None: it runs longer than it may.
fn wait(child: &mut Child) -> std::io::Result<Option<bool>> {
    let until = Instant::now() + WITHIN;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Tables that know chains and rules, by the words that make them.
    fn tables(there: &mut BTreeSet<String>, args: &[&str], log: &mut Vec<String>) -> Ran {
        let [_, table, how, rest @ ..] = args else { panic!("{args:?}") };
        let name = format!("{table} {}", rest.join(" "));
        match *how {
            "-S" | "-C" => (!there.contains(&name)).then(|| "no such thing".into()),
            _ => {
                assert!(there.insert(name.clone()), "{name} twice");
                log.push(format!("{how} {name}"));
                None
            }
        }
    }

    #[test]
    fn chains_are_made_once_and_again_after_a_flush() {
        let mut there = BTreeSet::new();
        let keep = |whole, there: &mut BTreeSet<String>| {
            let mut log = Vec::new();
            let kept = family(true, whole, &mut |args| Ok(tables(there, args, &mut log)));
            (kept.unwrap(), log)
        };
        let (kept, log) = keep(true, &mut there);
        assert_eq!((kept, log.len()), (Kept::Made, 8));
        assert_eq!(log[5], "-I filter OUTPUT -j KUBE-FIREWALL");
        assert!(log[4].starts_with("-A filter KUBE-FIREWALL -m comment"));
        assert_eq!(log[7], "-N mangle KUBE-KUBELET-CANARY");
        assert_eq!(keep(true, &mut there), (Kept::There, Vec::new()));
        // Nobody looks at the rest while the canary lives.
        there.remove("filter INPUT -j KUBE-FIREWALL");
        assert_eq!(keep(false, &mut there), (Kept::There, Vec::new()));
        there.remove("mangle KUBE-KUBELET-CANARY");
        let (kept, log) = keep(false, &mut there);
        let again = ["-I filter INPUT -j KUBE-FIREWALL", "-N mangle KUBE-KUBELET-CANARY"];
        assert_eq!((kept, log), (Kept::Made, again.map(str::to_owned).to_vec()));
        there.clear();
        assert_eq!(keep(false, &mut there).1.len(), 8);
        let mut log = Vec::new();
        let mut six = BTreeSet::new();
        family(false, true, &mut |args| Ok(tables(&mut six, args, &mut log))).unwrap();
        assert_eq!(log.len(), 7, "packets to 127/8 are IPv4");
    }

    #[test]
    fn what_goes_wrong_is_named() {
        let fault = run("/no/such/iptables", &[]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NotFound);
        let said = run("ls", &["/no/such/file"]).unwrap().unwrap();
        assert!(said.starts_with("ls /no/such/file: "), "{said}");
        let full = family(true, true, &mut |args| {
            Ok(Some(if args[2] == "-N" { "denied" } else { "no such chain" }.into()))
        });
        assert_eq!(full.unwrap_err().message, "denied");
    }
}
