//! The mounted shares, and their mounting and unmounting.

use crate::child_task::ChildTask;
use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::kind;
use crate::share::{Place, Share};
use crate::sys;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

const DEVICE: &str = "/dev/fuse";
/// Shown in the guest's list of mounts.
const SOURCE: &str = "forkd";
const KIND: &str = "fuse.forkd";

/// A share that is about to be mounted.
pub struct Mount {
    place: Place,
    fuse: File,
    /// Another share is mounted there.
    replaces: bool,
}

impl Mount {
    pub fn new(place: Place, replaces: bool) -> Result<Mount, Failure> {
        let Place { target, .. } = &place;
        if !target.starts_with('/') {
            return Err(Failure::Refused("bad_request", "the target must be an absolute path"));
        }
        let mut options = OpenOptions::new();
        let fuse = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE);
        match fuse {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Failure::Refused("unsupported", "this guest kernel has no FUSE"))
            }
            fuse => Ok(Mount {
                place,
                fuse: fuse?,
                replaces,
            }),
        }
    }

    /// Mounts it. The guest kernel sends no request before that, so no answer is needed yet.
    pub fn perform(&self) -> io::Result<()> {
        let target = &self.place.target;
        if self.replaces {
            // a program may have unmounted it
            let _ = sys::unmount(target);
        }
        fs::create_dir_all(target)?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            self.fuse.as_raw_fd()
        );
        let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        sys::mount(SOURCE, target, KIND, flags, &options)
    }

    /// The same in a child: the target's path may lead through another share, which must be served meanwhile.
    pub fn perform_in_child(&self, stream: u32) -> io::Result<ChildTask> {
        ChildTask::start(&[self.fuse.as_raw_fd()], |socket| {
            report(self.perform(), stream, socket)
        })
    }
}

/// Unmounts in a child, for the same reason; the child reports when it is done.
pub fn unmount_in_child(target: String, stream: u32) -> io::Result<ChildTask> {
    ChildTask::start(&[], |socket| {
        // a program may have unmounted it
        let _ = sys::unmount(&target);
        report(Ok(()), stream, socket);
    })
}

fn report(result: io::Result<()>, stream: u32, mut socket: UnixStream) {
    let mut outbox = Outbox::default();
    match result {
        Ok(()) => outbox.frame(kind::RESULT, stream, &[]),
        Err(e) => Failure::from(e).report(stream, &mut outbox),
    }
    // the agent may have ended
    let _ = outbox.write_to(&mut socket);
}

#[derive(Default)]
pub struct Shares {
    shares: BTreeMap<u32, Share>,
    last: u32,
}

impl Shares {
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    pub fn get(&mut self, number: u32) -> Option<&mut Share> {
        self.shares.get_mut(&number)
    }

    /// The share that is mounted at the target.
    pub fn find(&mut self, target: &str) -> Option<u32> {
        let found = self.shares.iter().find(|(_, share)| share.place.target == target);
        let number = found.map(|(number, _)| *number)?;
        if self.shares.get(&number).map_or(false, Share::is_unmounted) {
            self.shares.remove(&number);
            return None;
        }
        Some(number)
    }

    /// Adds a mounted share; returns its number.
    pub fn add(&mut self, mount: Mount) -> u32 {
        self.last += 1;
        self.shares.insert(self.last, Share::new(mount.place, mount.fuse));
        self.last
    }

    /// From now on the stream answers for the share.
    pub fn attach(&mut self, number: u32, stream: u32, outbox: &mut Outbox) -> Option<u32> {
        let share = self.shares.get_mut(&number)?;
        let former = share.attach(stream);
        outbox.frame(kind::OPENED, stream, &[]);
        share.pump(outbox);
        former
    }

    pub fn detach_all(&mut self) {
        for share in self.shares.values_mut() {
            share.detach();
        }
    }

    /// Ends a share: waiting processes get an error, and its path is free as soon as no process is in it.
    pub fn remove(&mut self, number: u32) -> Option<String> {
        // closing the descriptor makes the guest kernel drop all requests, so nothing below the mount can wait for the
        // agent
        self.shares.remove(&number).map(|share| share.place.target)
    }

    pub fn pump(&mut self, outbox: &mut Outbox) {
        for share in self.shares.values_mut() {
            share.pump(outbox);
        }
    }

    pub fn interests(&self, outbox: &Outbox, mut add: impl FnMut(u32, RawFd, i16)) {
        for (number, share) in &self.shares {
            if let Some((fd, events)) = share.interest(outbox) {
                add(*number, fd, events);
            }
        }
    }
}
