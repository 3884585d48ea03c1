//! What start-up does and finds out: the lock, the limits, the machine.

mod notify;
mod tunables;

pub use notify::{Watchdog, notify_ready};
pub use tunables::{share, sysctls};

use super::doors::Kernel;
use super::doors::make_dirs;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::ifaddrs::getifaddrs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::utsname::uname;
use nix::unistd::{SysconfVar, gethostname, sysconf};
use procfs::net::{RouteEntry, route};
use procfs::process::all_processes;
use procfs::{Current, Meminfo};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use steplet_core::event::Machine;

/// The facts of this machine that a run begins with.
pub fn machine() -> Machine {
    let kernel = Kernel::new();
    let memory = Meminfo::current().ok();
    let release = uname().ok().map(|u| u.release().to_string_lossy().into_owned());
    Machine {
        cpus: cpus(),
        memory_bytes: memory.as_ref().map_or(0, |memory| memory.mem_total),
        swap_bytes: memory.map_or(0, |memory| memory.swap_total),
        system_uuid: system_uuid(),
        boot_id: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        machine_id: machine_id(),
        kernel_version: release.unwrap_or_default(),
        os_image: os_image(&read("/etc/os-release")),
        architecture: go_arch(std::env::consts::ARCH).to_owned(),
        host_ips: host_ips(),
        cgroup_version: kernel.version(),
        controllers: kernel.controllers(),
        hugepage_bytes: hugepage_sizes().into_iter().map(hugepage_bytes).collect(),
        hugepage_sizes: hugepage_sizes(),
        thermal_throttle: thermal_throttle(),
        app_armor: read("/sys/module/apparmor/parameters/enabled").starts_with('Y'),
    }
}

/// Eight bytes of the kernel's generator.
pub fn seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Holds the root directory for this process; another agent on the same one ends itself.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held open, for the lock on it")] Flock<File>);

#[derive(Debug)]
pub enum LockError {
    /// Another agent runs; its process id, if it could be read.
    Held(Option<u32>),
    Io(io::Error),
}

/// Makes the root directory and takes it for this process.
pub fn lock(root: &Path) -> Result<Lock, LockError> {
    make_dirs(root, 0o750).map_err(|fault| LockError::Io(io::Error::other(fault.message)))?;
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = open.open(root.join("steplet.lock")).map_err(LockError::Io)?;
    let mut held = take(file)?;
    // For people only: a full disk is no reason to let the pods alone.
    let pid = format!("{}\n", std::process::id());
    if let Err(error) = held.set_len(0).and_then(|()| held.write_all(pid.as_bytes())) {
        log::warn!("Cannot write down the process id in {}: {error}", root.display());
    }
    Ok(Lock(held))
}

/// Takes the directory that a runtime's socket lies in, whatever file there is; `None` when it is
/// not there yet.
pub fn lock_beside(socket: &Path) -> Result<Option<Lock>, LockError> {
    match File::open(socket.parent().unwrap_or(Path::new("/"))) {
        Ok(dir) => Ok(Some(Lock(take(dir)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LockError::Io(error)),
    }
}

/// Takes a file that is made when it is missing, once nobody else has it.
pub fn wait_for_lock(path: &Path) -> io::Result<Lock> {
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => return Ok(Lock(held)),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(errno.into()),
    };
    log::warn!("Another process holds {}: waiting until it lets go", path.display());
    match Flock::lock(file, FlockArg::LockExclusive) {
        Ok(held) => Ok(Lock(held)),
        Err((_, errno)) => Err(errno.into()),
    }
}

fn take(file: File) -> Result<Flock<File>, LockError> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(held),
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(LockError::Held(pid.trim().parse().ok()))
        }
        Err((_, errno)) => Err(LockError::Io(errno.into())),
    }
}

/// Whether swap is on. Upstream refuses to start then, unless failSwapOn is false.
pub fn swap_is_on() -> bool {
    has_swap(&read("/proc/swaps"))
}

fn has_swap(swaps: &str) -> bool {
    swaps.lines().skip(1).any(|line| !line.trim().is_empty())
}

/// The agent is one thread: it must not wait behind the containers that it starts.
const NICE: i32 = -10;
/// Address space of a helper process: eight times the largest frame that it is given.
const HELPER_BYTES: u64 = 512 << 20;

/// Asks for the limits that a node agent should have. A sandbox may refuse; the agent then works
/// with less.
pub fn raise_limits(max_open_files: u64, oom_score_adj: i32) {
    if let Err(error) = set_nice(NICE) {
        log::info!("Cannot set the nice value to {NICE}: {error}");
    }
    if let Err(error) = raise_open_files(max_open_files) {
        log::info!("Cannot raise the limit of open files to {max_open_files}: {error}");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", oom_score_adj.to_string()) {
        log::info!("Cannot set oom_score_adj to {oom_score_adj}: {error}");
    }
}

/// What a helper process gets instead: the time and the memory of any other process, and no more.
/// Errors: the kernel refuses.
pub fn limit_helper() -> io::Result<()> {
    set_nice(0)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_AS)?;
    Ok(setrlimit(Resource::RLIMIT_AS, HELPER_BYTES.min(hard), hard)?)
}

fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: setpriority takes numbers only.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn raise_open_files(wanted: u64) -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= wanted {
        return Ok(());
    }
    let whole = setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard));
    // Up to the hard limit is always allowed.
    whole.or_else(|errno| {
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(wanted), hard)?;
        Err(errno)
    })
}

/// The operating system's name of this host. Errors: a sentence for people.
pub fn hostname() -> Result<String, String> {
    let name = gethostname().map_err(|errno| format!("this host has no name: {errno}"))?;
    Ok(name.to_string_lossy().trim().to_owned())
}

/// The path of a unix socket as `containerRuntimeEndpoint` names it. Errors: a sentence for people.
pub fn socket_path(endpoint: &str) -> Result<PathBuf, String> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if path.starts_with('/') {
        return Ok(PathBuf::from(path));
    }
    Err(format!("{endpoint:?} is no runtime endpoint: unix:///path/of/a/socket is wanted"))
}

/// A process named kubelet that sees the same files as this one: its id and name.
pub fn other_kubelet() -> Option<(u32, String)> {
    let own = std::process::id();
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    // One that ends meanwhile cannot be read, and is nobody's rival; nor is the kubelet of a node
    // inside a container, which has files of its own.
    let stats = all_processes().ok()?.flatten().filter_map(|process| process.stat().ok());
    let mut kubelets = stats.filter(|stat| stat.comm == "kubelet");
    let rival = kubelets.find(|stat| {
        stat.pid.cast_unsigned() != own && mounts(&stat.pid.to_string()) == mounts("self")
    })?;
    Some((rival.pid.cast_unsigned(), rival.comm))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Processors that are online.
pub fn cpus() -> u32 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1)
}

/// As cAdvisor finds it: SMBIOS, the device tree of boards without one, else the machine's id.
fn system_uuid() -> String {
    let files = [
        "/sys/class/dmi/id/product_uuid",
        "/proc/device-tree/system-id",
        "/proc/device-tree/vm,uuid",
        "/etc/machine-id",
    ];
    let texts = files.iter().map(|file| read(file).trim_matches(['\0', '\n', ' ']).to_owned());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn machine_id() -> String {
    let id = read("/etc/machine-id").trim().to_owned();
    if id.is_empty() { read("/var/lib/dbus/machine-id").trim().to_owned() } else { id }
}

/// PRETTY_NAME of os-release(5), with its quotes taken off.
fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim().trim_matches(['"', '\'']).to_owned()
}

fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

fn hugepage_sizes() -> Vec<u64> {
    let entries = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut sizes: Vec<u64> =
        entries.filter_map(|entry| hugepage_size(entry.file_name().to_str()?)).collect();
    sizes.sort_unstable();
    sizes
}

fn hugepage_bytes(size: u64) -> u64 {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size / 1024);
    read(&path).trim().parse().unwrap_or(0_u64).saturating_mul(size)
}

/// `hugepages-2048kB` in bytes.
fn hugepage_size(name: &str) -> Option<u64> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn thermal_throttle() -> Vec<String> {
    let path = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
    (0..cpus()).map(path).filter(|path| Path::new(path).is_dir()).collect()
}

/// The addresses of the interfaces with a default route, IPv4 first, as upstream chooses
/// the node's (pkg/kubelet/nodestatus/setters.go); none on a machine without a network.
fn host_ips() -> Vec<String> {
    let v4 = default_interface(route().unwrap_or_default());
    let v6 = default_interface_v6(&read("/proc/net/ipv6_route"));
    let mut addresses = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let v4_of = |a: nix::sys::socket::SockaddrStorage| a.as_sockaddr_in().map(|a| a.ip());
        let v6_of = |a: nix::sys::socket::SockaddrStorage| a.as_sockaddr_in6().map(|a| a.ip());
        let name = Some(interface.interface_name);
        match (v4_of(address), v6_of(address)) {
            (Some(ip), _) if name == v4 => addresses.push(IpAddr::V4(ip)),
            (_, Some(ip)) if name == v6 && is_global(ip) => addresses.push(IpAddr::V6(ip)),
            _ => {}
        }
    }
    let first = |wanted: fn(&IpAddr) -> bool| addresses.iter().copied().find(wanted);
    let ips = [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)];
    ips.into_iter().flatten().map(|ip| ip.to_string()).collect()
}

fn is_global(ip: Ipv6Addr) -> bool {
    !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast())
}

/// The interface of the default route with the lowest metric.
fn default_interface(routes: Vec<RouteEntry>) -> Option<String> {
    let any = Ipv4Addr::UNSPECIFIED;
    let defaults = routes.into_iter().filter(|to| to.destination == any && to.mask == any);
    defaults.min_by_key(|route| route.metrics).map(|route| route.iface)
}

/// The same from `/proc/net/ipv6_route`, whose metric is in hexadecimal; procfs does not read it.
fn default_interface_v6(table: &str) -> Option<String> {
    let any = "00000000000000000000000000000000";
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [to, "00", _, _, _, metric, _, _, _, interface] = fields[..] else { return None };
        let metric = u32::from_str_radix(metric, 16).ok()?;
        (to == any && interface != "lo").then_some((metric, interface))
    });
    routes.min().map(|(_, interface)| interface.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use procfs::FromBufRead;
    use procfs::net::RouteEntries;

    #[test]
    fn texts_of_the_kernel() {
        let os = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(os_image(os), "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(os_image(""), "Linux");
        assert_eq!(hugepage_size("hugepages-2048kB"), Some(2 << 20));
        assert_eq!(hugepage_size("hugepages-x"), None);
        assert!(!has_swap("Filename\tType\tSize\tUsed\tPriority\n"));
        assert!(has_swap("Filename\tType\n/dev/sda2 partition 1 0 -2\n"));
        assert!(!has_swap(""));
    }

    #[test]
    fn default_routes() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU ...\n\
                  eth1\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
                  eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                  eth2\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let routes = RouteEntries::from_buf_read(v4.as_bytes()).unwrap();
        assert_eq!(default_interface(routes.0).as_deref(), Some("eth0"));
        assert_eq!(default_interface(Vec::new()), None);
        let zero = "0".repeat(32);
        let gateway = "fe800000000000000000000000000001";
        let v6 = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003     eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n"
        );
        assert_eq!(default_interface_v6(&v6).as_deref(), Some("eth0"));
        assert_eq!(default_interface_v6(""), None);
    }

    #[test]
    fn a_lock_file_is_held_until_the_end() {
        let scratch = Scratch::new("lock-file");
        let path = scratch.path().join("l");
        let held = wait_for_lock(&path).unwrap();
        let other = || take(File::open(&path).unwrap());
        assert!(matches!(other(), Err(LockError::Held(None))));
        drop(held);
        assert!(other().is_ok());
        assert!(wait_for_lock(&scratch.path().join("none/l")).is_err());
    }

    #[test]
    fn endpoints() {
        let check = |endpoint: &str, want: Option<&str>| {
            assert_eq!(socket_path(endpoint).ok(), want.map(PathBuf::from), "{endpoint}");
        };
        check("unix:///run/containerd/containerd.sock", Some("/run/containerd/containerd.sock"));
        check("/run/crio/crio.sock", Some("/run/crio/crio.sock"));
        check("tcp://127.0.0.1:1", None);
        check("run/crio.sock", None);
        check("", None);
    }

    #[test]
    fn the_second_instance_learns_of_the_first() {
        let scratch = Scratch::new("lock");
        let root = scratch.path().join("root");
        let first = lock(&root).unwrap();
        match lock(&root) {
            Err(LockError::Held(pid)) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        lock(&root).unwrap();
    }

    #[test]
    fn this_machine() {
        let machine = machine();
        assert!(machine.cpus > 0 && machine.memory_bytes > 0);
        assert!(!machine.boot_id.is_empty() && !machine.kernel_version.is_empty());
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}
