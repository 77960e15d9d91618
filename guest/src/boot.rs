//! Boot: from the guest kernel's start of the agent to a machine that can run programs: mounts, modules, the overlay
//! root.

use crate::sys;
use forkd_wire::errno;
use std::env;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

const KERNELS: &str = "run/forkd/kernels";
const DEVICE_ATTEMPTS: u32 = 500;
const DEVICE_PAUSE: Duration = Duration::from_millis(10);

/// Options on the guest kernel's command line.
pub struct Options {
    pub key: [u8; 16],
    root: Option<String>,
    fs_type: String,
    disk: Option<String>,
}

/// A boot step that failed.
pub struct Fatal(pub String);

fn fatal(what: impl Display) -> impl FnOnce(io::Error) -> Fatal {
    move |e| Fatal(format!("{}: {}", what, errno::text(&e)))
}

/// Boots up to the point where the port can be opened.
pub fn boot() -> Result<Options, Fatal> {
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, kind, target, 0, "")?;
    }
    if let Ok(console) = OpenOptions::new().write(true).open("/dev/console") {
        sys::use_console(&console).map_err(fatal("console"))?;
    }
    sys::reserve_low_fds().map_err(fatal("descriptors"))?;
    let options = options()?;
    load_modules()?;
    match &options.root {
        Some(device) => {
            overlay_root(device, &options.fs_type, options.disk.as_deref())?;
            furnish("/new")?;
            free_initramfs().map_err(fatal("initramfs"))?;
            enter("/new").map_err(fatal("root"))?;
        }
        None => furnish("/")?,
    }
    sys::loopback_up().map_err(fatal("lo"))?;
    end_rather_than_thrash();
    Ok(options)
}

/// A guest without free memory would read its programs from the image again and again for minutes. The pages of the
/// last second stay in memory, and if they do not fit, the guest kernel kills the largest process.
///
/// The value 1 enables it without walks through page tables. Such a walk keeps the memory of a process that was killed
/// meanwhile; the guest kernel then finds neither free memory nor a process that is ending, and kills the next one.
fn end_rather_than_thrash() {
    for (file, value) in [("enabled", "1"), ("min_ttl_ms", "1000")] {
        // guest kernels without this setting thrash
        let _ = fs::write(format!("/sys/kernel/mm/lru_gen/{}", file), value);
    }
}

fn mount(source: &str, kind: &str, target: &str, flags: libc::c_ulong, options: &str) -> Result<(), Fatal> {
    fs::create_dir_all(target).map_err(fatal(target))?;
    match sys::mount(source, target, kind, flags, options) {
        // the guest kernel may have mounted /dev itself
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        result => result.map_err(fatal(format!("mount {} on {}", kind, target))),
    }
}

fn options() -> Result<Options, Fatal> {
    let line = fs::read_to_string("/proc/cmdline").map_err(fatal("/proc/cmdline"))?;
    parse_options(&line).ok_or_else(|| Fatal("command line: forkd.key is not 32 hex digits".into()))
}

fn parse_options(line: &str) -> Option<Options> {
    let value = |name: &str| {
        line.split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let hex = value("forkd.key")?;
    if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 16];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Options {
        key,
        root: value("forkd.root").map(str::to_string),
        fs_type: value("forkd.fstype").unwrap_or("squashfs").to_string(),
        disk: value("forkd.disk").map(str::to_string),
    })
}

fn load_modules() -> Result<(), Fatal> {
    let list = match fs::read_to_string("/modules/load") {
        Ok(list) => list,
        // everything is built in
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fatal("/modules/load")(e)),
    };
    for name in list.lines().map(str::trim).filter(|name| !name.is_empty()) {
        let path = Path::new("/modules").join(name);
        let file = File::open(&path).map_err(fatal(path.display()))?;
        let compressed = [".xz", ".gz", ".zst"].iter().any(|end| name.ends_with(end));
        match sys::load_module(&file, compressed) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
            result => result.map_err(fatal(format!("module {}", name)))?,
        }
    }
    Ok(())
}

/// Mounts the read-only image, and above it the writable layer: the disk, or a tmpfs without one.
fn overlay_root(device: &str, fs_type: &str, disk: Option<&str>) -> Result<(), Fatal> {
    let quiet = libc::MS_NODEV | libc::MS_NOATIME;
    await_device(device);
    mount(device, fs_type, "/lower", quiet | libc::MS_RDONLY, "")?;
    match disk {
        Some(disk) => {
            await_device(disk);
            // discard returns deleted blocks to the host
            mount(disk, "ext4", "/upper", quiet, "discard,errors=remount-ro")?;
        }
        None => mount("tmpfs", "tmpfs", "/upper", quiet, "size=50%,mode=755")?,
    }
    for folder in ["/upper/files", "/upper/work"] {
        fs::create_dir(folder).map_err(fatal(folder))?;
    }
    let layers = "lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work";
    mount("overlay", "overlay", "/new", libc::MS_NOATIME, layers)
}

fn await_device(device: &str) {
    for _ in 0..DEVICE_ATTEMPTS {
        if Path::new(device).exists() {
            break;
        }
        thread::sleep(DEVICE_PAUSE);
    }
}

/// Mounts the file systems that programs expect below `root`, and copies the kernels into it.
fn furnish(root: &str) -> Result<(), Fatal> {
    let at = |path: &str| Path::new(root).join(path).to_string_lossy().into_owned();
    if root != "/" {
        for folder in ["dev", "proc", "sys"] {
            let from = format!("/{}", folder);
            mount(&from, "", &at(folder), libc::MS_MOVE, "")?;
        }
    }
    let safe = libc::MS_NOSUID | libc::MS_NODEV;
    let own = libc::MS_NOSUID;
    mount("devpts", "devpts", &at("dev/pts"), own, "mode=620,gid=5,ptmxmode=666")?;
    mount("tmpfs", "tmpfs", &at("dev/shm"), safe, "mode=1777")?;
    mount("tmpfs", "tmpfs", &at("run"), safe, "mode=755")?;
    mount("tmpfs", "tmpfs", &at("tmp"), safe, "mode=1777")?;
    for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let link = at(&format!("dev/{}", name));
        match symlink(format!("/proc/self/fd{}", target), &link) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            result => result.map_err(fatal(link))?,
        }
    }
    let kernels = at(KERNELS);
    fs::create_dir_all(&kernels).map_err(fatal(&kernels))?;
    let sources = match fs::read_dir("/kernels") {
        Ok(sources) => sources,
        Err(_) => return Ok(()),
    };
    for source in sources.flatten() {
        let target = Path::new(&kernels).join(source.file_name());
        fs::copy(source.path(), &target).map_err(fatal(target.display()))?;
    }
    Ok(())
}

/// Deletes the files of the initramfs, which would take memory as long as the guest runs.
fn free_initramfs() -> io::Result<()> {
    let root = fs::metadata("/")?.dev();
    for entry in fs::read_dir("/")?.flatten() {
        let found = fs::symlink_metadata(entry.path())?;
        // mount points are on other devices; an empty folder costs nothing
        if found.dev() != root {
            continue;
        }
        if found.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes `root` the root. An initramfs cannot be pivoted away, so the new root is moved over it.
fn enter(root: &str) -> io::Result<()> {
    env::set_current_dir(root)?;
    sys::mount(".", "/", "", libc::MS_MOVE, "")?;
    sys::chroot(".")?;
    env::set_current_dir("/")
}

#[cfg(test)]
mod tests {
    use super::parse_options;

    #[test]
    fn reads_the_command_line() {
        let key = "000102030405060708090a0b0c0d0eFF";
        let found = parse_options(&format!("quiet forkd.key={} forkd.root=/dev/vda\n", key));
        let found = found.unwrap();
        assert_eq!(found.key[..3], [0, 1, 2]);
        assert_eq!(found.key[15], 255);
        assert_eq!(found.root.as_deref(), Some("/dev/vda"));
        assert_eq!(found.fs_type, "squashfs");
        assert_eq!(found.disk, None);
        let found = parse_options(&format!("forkd.key={} forkd.disk=/dev/vdb", key)).unwrap();
        assert_eq!(found.disk.as_deref(), Some("/dev/vdb"));
        for bad in ["", "forkd.key=12", "forkd.key=zz0102030405060708090a0b0c0d0e0f"] {
            assert!(parse_options(bad).is_none());
        }
    }
}
