//! The loop: waits for the port, for signals and for processes, and does what the frames ask.

mod own;

use crate::failure::Failure;
use crate::files::{self, Download, Upload};
use crate::generators::Generators;
use crate::listeners;
use crate::network::{Door, Network, FIRST_OWN};
use crate::outbox::Outbox;
use crate::port::Port;
use crate::process::Part;
use crate::protocol::{attached_record, channel, kind, Decoder, Event, Frame, Reader, Writer, VERSION};
use crate::resync::Identity;
use crate::shutdown;
use crate::socket::Socket;
use crate::spawn::Request;
use crate::sys::{self, PollFd};
use crate::table::Table;
use crate::tools;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::io::AsRawFd;

const MOST_STREAMS: usize = 4096;
const SCRATCH: usize = 65536;

enum Stream {
    Process(u64),
    Download(Download),
    Upload(Upload),
    Socket(Socket),
}

/// What a descriptor that is waited for belongs to.
enum Source {
    Process(u64, Part),
    Stream(u32),
    Door(Door),
}

pub struct Agent {
    port: Port,
    signals: File,
    outbox: Outbox,
    streams: BTreeMap<u32, Stream>,
    table: Table,
    identity: Identity,
    generators: Generators,
    network: Network,
    /// The stream that the agent opened last.
    last_own: u32,
    release: String,
    attached: u32,
    scratch: Vec<u8>,
    fds: Vec<PollFd>,
    /// What the descriptors from the third on belong to.
    sources: Vec<Source>,
    /// The stream whose turn to send is next.
    turn: u32,
}

impl Agent {
    pub fn new() -> io::Result<Agent> {
        Ok(Agent {
            signals: sys::child_signals()?,
            outbox: Outbox::default(),
            streams: BTreeMap::new(),
            table: Table::default(),
            identity: Identity::new()?,
            generators: Generators::default(),
            network: Network::default(),
            last_own: u32::MAX,
            release: fs::read_to_string("/proc/sys/kernel/osrelease")?,
            attached: 0,
            scratch: vec![0; SCRATCH],
            fds: Vec::new(),
            sources: Vec::new(),
            turn: 0,
            // last: from here on the host is served
            port: Port::open()?,
        })
    }

    /// Serves for ever a host that knows the key.
    pub fn run(&mut self, key: &[u8; 16]) -> io::Result<()> {
        let mut decoder = Decoder::new(key);
        loop {
            let more = self.send();
            let timeout = match self.table.time_outs() {
                _ if more => 0,
                Some(ms) => ms.min(i32::MAX as u64) as i32,
                None => -1,
            };
            self.wait(timeout)?;
            if self.port.ready(self.fds[0].revents) {
                self.receive(&mut decoder);
            }
            if self.fds[1].revents != 0 {
                self.read_signals();
            }
            for at in 0..self.sources.len() {
                let events = self.fds[at + 2].revents;
                if events != 0 {
                    self.ready(at, events);
                }
            }
        }
    }

    /// The descriptor of a source is ready.
    fn ready(&mut self, at: usize, events: i16) {
        match self.sources[at] {
            Source::Process(id, part) => {
                if let Some(process) = self.table.get(id) {
                    process.ready(part, events, &mut self.outbox, &mut self.scratch);
                }
            }
            Source::Stream(number) => self.stream_ready(number, events),
            Source::Door(door) => self.serve(door),
        }
    }

    fn stream_ready(&mut self, number: u32, events: i16) {
        match self.streams.get_mut(&number) {
            Some(Stream::Socket(socket)) => {
                let result = socket.ready(number, events, &mut self.outbox, &mut self.scratch);
                self.settle(number, result);
            }
            Some(Stream::Download(download)) => download.ready(),
            Some(Stream::Upload(upload)) => {
                let ended = upload.ready(number, &mut self.outbox);
                self.end_upload(number, ended);
            }
            _ => {}
        }
    }

    /// After something was done on a stream: it may have failed, or ended.
    fn settle(&mut self, number: u32, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.forget(number);
            failure.report(number, &mut self.outbox);
            return;
        }
        if matches!(self.streams.get(&number), Some(Stream::Socket(socket)) if socket.is_over()) {
            if let Some(Stream::Socket(socket)) = self.streams.remove(&number) {
                socket.finish(number, &mut self.outbox);
            }
        }
    }

    /// What became of an upload after a step.
    fn end_upload(&mut self, stream: u32, ended: Result<bool, Failure>) {
        if let Err(failure) = &ended {
            failure.report(stream, &mut self.outbox);
        }
        if !matches!(ended, Ok(false)) {
            self.streams.remove(&stream);
        }
    }

    /// Moves output to the host as far as it goes; `true` when more could go at once.
    fn send(&mut self) -> bool {
        let (streams, outbox) = (&mut self.streams, &mut self.outbox);
        self.table.pump(outbox, &mut self.scratch, |stream| {
            streams.remove(&stream);
        });
        let more = self.send_files();
        let outbox = &mut self.outbox;
        let was_full = outbox.is_full();
        if !outbox.is_empty() {
            // a port that fails has no host; the next attach begins anew
            let _ = outbox.write_to(&mut self.port);
        }
        (was_full || more) && !outbox.is_full()
    }

    /// Files on their way to the host, each in its turn; `true` when one of them could send more.
    fn send_files(&mut self) -> bool {
        let (streams, outbox) = (&mut self.streams, &mut self.outbox);
        let mut more = false;
        let mut ended = Vec::new();
        let mut next = None;
        for range in [self.turn..u32::MAX, 0..self.turn] {
            for (stream, state) in streams.range_mut(range) {
                if let Stream::Download(download) = state {
                    if outbox.is_full() {
                        next.get_or_insert(*stream);
                    } else if download.pump(*stream, outbox) {
                        ended.push(*stream);
                    } else {
                        more |= download.has_more();
                    }
                }
            }
        }
        self.turn = next.unwrap_or(0);
        for stream in ended {
            streams.remove(&stream);
        }
        more
    }

    fn wait(&mut self, timeout: i32) -> io::Result<()> {
        let (fds, sources) = (&mut self.fds, &mut self.sources);
        fds.clear();
        sources.clear();
        let (read, write) = (!self.outbox.is_flooded(), !self.outbox.is_empty());
        fds.push(self.port.interest(read, write));
        fds.push(sys::poll_fd(self.signals.as_raw_fd(), sys::POLLIN));
        self.table.interests(&self.outbox, |id, part, fd, events| {
            fds.push(sys::poll_fd(fd, events));
            sources.push(Source::Process(id, part));
        });
        for (number, stream) in &self.streams {
            let interest = match stream {
                Stream::Socket(socket) => socket.interest(&self.outbox),
                Stream::Download(download) => download.interest(&self.outbox).map(|fd| (fd, sys::POLLIN)),
                Stream::Upload(upload) => upload.interest().map(|fd| (fd, sys::POLLOUT)),
                Stream::Process(_) => None,
            };
            if let Some((fd, events)) = interest {
                fds.push(sys::poll_fd(fd, events));
                sources.push(Source::Stream(*number));
            }
        }
        if !self.outbox.is_full() {
            self.network.interests(|door, fd| {
                fds.push(sys::poll_fd(fd, sys::POLLIN));
                sources.push(Source::Door(door));
            });
        }
        sys::poll(fds, timeout)
    }

    fn receive(&mut self, decoder: &mut Decoder) {
        decoder.fill(|room| self.port.receive(room));
        while let Some(event) = decoder.next() {
            match event {
                Event::Attach(nonce) => self.attach(&nonce),
                Event::Frame(frame) => self.frame(&frame),
            }
        }
    }

    fn read_signals(&mut self) {
        // the content does not matter: all ended children are collected
        let _ = self.signals.read(&mut self.scratch);
        self.table.reap(&mut self.scratch);
    }

    /// A host end attached: everything of the former one is forgotten, except the processes.
    fn attach(&mut self, nonce: &[u8; 16]) {
        self.outbox.clear();
        self.streams.clear();
        self.network.detach();
        self.table.detach_all();
        self.attached += 1;
        self.outbox.raw(&attached_record(nonce));
        let hello = Writer::default()
            .u32(VERSION)
            .str(env!("CARGO_PKG_VERSION"))
            .str(self.release.trim_end())
            .u32(self.attached)
            .u64(sys::monotonic_ms());
        self.outbox.frame(kind::HELLO, 0, &hello.0);
    }

    fn frame(&mut self, frame: &Frame) {
        let result = match kind::opens_a_stream(frame.kind) {
            true => self.request(frame),
            false => self.continuation(frame),
        };
        self.settle(frame.stream, result);
    }

    /// Ends the host's interest in a stream.
    fn forget(&mut self, stream: u32) {
        if let Some(Stream::Process(id)) = self.streams.remove(&stream) {
            self.table.detach(id);
        }
    }

    /// A frame for a stream that should exist.
    fn continuation(&mut self, frame: &Frame) -> Result<(), Failure> {
        let number = frame.stream;
        if self.network.answer(number, frame.kind, &frame.payload)? {
            return Ok(());
        }
        if frame.kind == kind::OPENED {
            self.opened(number);
            return Ok(());
        }
        let stream = match self.streams.get_mut(&number) {
            Some(stream) => stream,
            None => return Ok(()),
        };
        if matches!(frame.kind, kind::CANCEL | kind::ERROR) {
            self.forget(number);
            return Ok(());
        }
        let mut reader = Reader::new(&frame.payload);
        if let Stream::Process(id) = stream {
            let id = *id;
            return self.process_frame(id, frame, &mut reader);
        }
        let channel = reader.u8()?;
        match (stream, frame.kind) {
            (Stream::Download(download), kind::CREDIT) => download.credit(reader.u32()? as usize),
            (Stream::Socket(socket), kind::CREDIT) => socket.credit(reader.u32()? as usize),
            (Stream::Socket(socket), kind::DATA) => socket.data(number, reader.rest(), &mut self.outbox)?,
            (Stream::Socket(socket), kind::EOF) => socket.eof(number, &mut self.outbox),
            (Stream::Upload(upload), kind::DATA) if channel == channel::STDIN => {
                upload.data(number, reader.rest(), &mut self.outbox)?
            }
            (Stream::Upload(upload), kind::EOF) if channel == channel::STDIN => {
                let ended = upload.eof(number, &mut self.outbox);
                self.end_upload(number, ended);
            }
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }

    fn process_frame(&mut self, id: u64, frame: &Frame, reader: &mut Reader) -> Result<(), Failure> {
        let process = match self.table.get(id) {
            Some(process) => process,
            None => return Ok(()),
        };
        match frame.kind {
            kind::SIGNAL => {
                let (signal, scope) = (reader.u32()?, reader.u8()?);
                if process.ended.is_none() && (1..=64).contains(&signal) && scope <= 1 {
                    let target = if scope == 1 { -process.pid } else { process.pid };
                    // it may be ending just now
                    let _ = sys::kill(target, signal as i32);
                }
            }
            kind::RESIZE => process.resize(reader.u16()?, reader.u16()?),
            kind::CREDIT => process.credit(reader.u8()?, reader.u32()? as usize),
            kind::DATA => {
                if !process.data(reader.u8()?, reader.rest(), &mut self.outbox) {
                    return Err(Failure::FlowControl);
                }
            }
            kind::EOF => process.eof(reader.u8()?, &mut self.outbox),
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }

    /// A frame that opens a stream.
    fn request(&mut self, frame: &Frame) -> Result<(), Failure> {
        let (stream, payload) = (frame.stream, frame.payload.as_ref());
        if stream == 0 || stream >= FIRST_OWN || self.streams.contains_key(&stream) {
            return Err(Failure::Refused("bad_request", "the stream is in use"));
        }
        if self.streams.len() >= MOST_STREAMS {
            return Err(Failure::Refused("too_many_streams", "4096 streams are open"));
        }
        match frame.kind {
            kind::PING => self.outbox.frame(kind::RESULT, stream, &[]),
            kind::EXEC => return self.exec(stream, payload),
            kind::ATTACH => return self.attach_process(stream, payload),
            kind::LIST => self.table.list(Reader::new(payload).u64()?, stream, &mut self.outbox),
            kind::READ => {
                let download = Download::open(payload)?;
                self.streams.insert(stream, Stream::Download(download));
            }
            kind::WRITE => {
                let upload = Upload::open(payload)?;
                self.streams.insert(stream, Stream::Upload(upload));
            }
            kind::CONNECT => {
                let socket = Socket::connect(payload)?;
                self.streams.insert(stream, Stream::Socket(socket));
            }
            kind::NETWORK => {
                self.network.switch(payload)?;
                self.outbox.frame(kind::RESULT, stream, &[]);
            }
            kind::LISTENERS => {
                let answer = listeners::answer(payload, self.network.own_port())?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::STAT | kind::MKDIR | kind::MOVE | kind::REMOVE | kind::CHMOD | kind::CHOWN | kind::SYMLINK => {
                let answer = files::quick(frame.kind, payload)?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::TOOL => {
                let spawned = tools::start(&tools::Request::read(payload)?)?;
                let id = self.table.tool(spawned, stream, &mut self.outbox);
                self.streams.insert(stream, Stream::Process(id));
            }
            kind::RESYNC => {
                let answer = self.identity.resync(payload, &mut self.generators, &mut self.scratch)?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::CLOCK => {
                sys::set_wall_clock_ns(Reader::new(payload).i64()?)?;
                let now = Writer::default().i64(sys::wall_clock_ns());
                self.outbox.frame(kind::RESULT, stream, &now.0);
            }
            kind::REGIONS => {
                let mut reader = Reader::new(payload);
                let tag = reader.str()?;
                let process = self.table.find(0, &tag).filter(|process| process.ended.is_none());
                let process = process.ok_or(Failure::Refused("no_such_process", "no such process"))?;
                self.generators.set(process, &mut reader)?;
                self.outbox.frame(kind::RESULT, stream, &[]);
            }
            kind::POWEROFF => {
                self.outbox.frame(kind::RESULT, stream, &[]);
                shutdown::power_off(&mut self.outbox, &mut self.port)
            }
            _ => return Err(Failure::Refused("unsupported", "unknown frame type")),
        }
        Ok(())
    }

    fn exec(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let request = Request::read(payload)?;
        let env = &self.identity.env;
        match self.table.exec(request, env, stream, &mut self.outbox) {
            Ok(id) => {
                self.streams.insert(stream, Stream::Process(id));
            }
            Err(refusal) => self.outbox.error(stream, &refusal.code, &refusal.message),
        }
        Ok(())
    }

    fn attach_process(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader::new(payload);
        let (id, tag) = (reader.u64()?, reader.str()?);
        let from = [reader.u64()?, reader.u64()?];
        let process = match self.table.find(id, &tag) {
            Some(process) => process,
            None => return Err(Failure::Refused("no_such_process", "no such process")),
        };
        if let Some(former) = process.stream {
            self.streams.remove(&former);
            let message = "another stream took the process over";
            self.outbox.error(former, "taken_over", message);
        }
        process.attach_again(stream, from, &mut self.outbox);
        self.streams.insert(stream, Stream::Process(process.id));
        Ok(())
    }
}
