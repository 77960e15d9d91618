use super::*;
use forkd_wire::Reader;
use std::collections::BTreeSet;
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::process;
use std::thread::{self, JoinHandle};

/// A watch in its own thread, on its own folder.
struct Watched {
    folder: PathBuf,
    input: File,
    output: File,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    fn new(name: &str, debounce_ms: u64, recursive: bool) -> Watched {
        let folder = env::temp_dir().join(format!("forkd-watch-{}-{}-{}", name, debounce_ms, process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("old")).unwrap();
        fs::write(folder.join("old/file"), "old").unwrap();
        let (theirs, input) = sys::pipe().unwrap();
        let (output, ours) = sys::pipe().unwrap();
        let how = How {
            debounce_ms,
            recursive,
            flushes: true,
        };
        let path = folder.clone();
        let thread = thread::spawn(move || {
            assert!(watch(&path, &how, theirs.into(), ours.into()).is_ok());
        });
        let mut watched = Watched {
            folder,
            input: input.into(),
            output: output.into(),
            thread: Some(thread),
        };
        assert_eq!(watched.bytes(1), b"S");
        watched
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.output.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn path(&mut self) -> String {
        let length = self.bytes(4);
        let length = Reader::new(&length).u32().unwrap() as usize;
        let path = String::from_utf8(self.bytes(length)).unwrap();
        let start = self.folder.to_str().unwrap();
        path.strip_prefix(start)
            .unwrap_or(&path)
            .trim_start_matches('/')
            .to_string()
    }

    /// Everything that has happened so far, as `letter path` or `v from path`.
    fn events(&mut self) -> Vec<String> {
        self.input.write_all(b"f").unwrap();
        let mut events = Vec::new();
        loop {
            let kind = self.bytes(1)[0] as char;
            if kind == 'F' {
                return events;
            }
            self.bytes(1);
            let (path, from) = (self.path(), self.path());
            events.push(match kind {
                'v' => format!("v {} {}", from, path),
                _ => format!("{} {}", kind, path),
            });
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // the watch ends with its folder
        fs::remove_dir_all(&self.folder).unwrap();
        if let (Some(thread), false) = (self.thread.take(), thread::panicking()) {
            let mut rest = Vec::new();
            self.output.read_to_end(&mut rest).unwrap();
            thread.join().unwrap();
        }
    }
}

/// A write between two reads of a new folder may be reported twice, but is never missed.
fn told_twice_at_most(events: &mut Vec<String>) {
    events.dedup_by(|one, other| one == other && one.starts_with('m'));
}

#[test]
fn a_flush_returns_all_earlier_changes() {
    let mut watched = Watched::new("all", 0, false);
    for round in 0..200 {
        let (name, path) = (format!("f{}", round), watched.at(&format!("f{}", round)));
        let mut file = File::create(&path).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        file.write_all(b"content").unwrap();
        assert_eq!(
            watched.events(),
            [format!("c {}", name), format!("a {}", name), format!("m {}", name)]
        );
        fs::rename(&path, watched.at("moved")).unwrap();
        fs::remove_file(watched.at("moved")).unwrap();
        assert_eq!(watched.events(), [format!("v {} moved", name), "d moved".to_string()]);
    }
    assert_eq!(watched.events(), [""; 0]);
}

#[test]
fn repeated_changes_of_a_batch_are_reported_once() {
    // longer than this test: only the flush request ends the batch
    let mut watched = Watched::new("gathered", 600_000, false);
    for _ in 0..3 {
        let path = watched.at("file");
        let mut file = File::create(&path).unwrap();
        for _ in 0..5 {
            file.write_all(b"x").unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(watched.events(), ["c file", "m file", "a file"]);
        file.write_all(b"x").unwrap();
        assert_eq!(watched.events(), ["m file"]);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "again").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(watched.events(), ["d file", "c file", "m file", "d file"]);
    }
}

#[test]
fn creations_in_a_new_folder_are_reported_exactly_once() {
    for debounce_ms in [0, 5] {
        let mut watched = Watched::new("nested", debounce_ms, true);
        for round in 0..200 {
            let folder = format!("d{}", round);
            fs::create_dir_all(watched.at(&format!("{}/e", folder))).unwrap();
            for name in ["f", "g"] {
                fs::write(watched.at(&format!("{}/e/{}", folder, name)), "content").unwrap();
            }
            let mut events = watched.events();
            events.sort();
            told_twice_at_most(&mut events);
            let wanted = ["c @", "c @/e", "c @/e/f", "c @/e/g", "m @/e/f", "m @/e/g"];
            assert_eq!(events, wanted.map(|event| event.replace('@', &folder)), "{}", round);
        }
    }
}

#[test]
fn a_folder_that_is_moved_while_it_is_found_is_watched_where_it_is() {
    let mut watched = Watched::new("moving", 0, true);
    for round in 0..200 {
        let (before, after) = (format!("a{}", round), format!("c{}", round));
        fs::create_dir_all(watched.at(&format!("{}/b", before))).unwrap();
        fs::rename(watched.at(&before), watched.at(&after)).unwrap();
        fs::write(watched.at(&format!("{}/b/f", after)), "content").unwrap();
        let mut events = watched.events();
        told_twice_at_most(&mut events);
        for wanted in ["v %a %c", "c %c/b/f", "m %c/b/f"] {
            let wanted = wanted.replace("%a", &before).replace("%c", &after);
            let times = events.iter().filter(|event| **event == wanted).count();
            assert_eq!(times, 1, "{} in round {}: {:?}", wanted, round, events);
        }
    }
}

#[test]
fn existing_and_moved_files_are_not_reported_as_written() {
    let mut watched = Watched::new("old", 0, true);
    let outside = watched.folder.with_extension("outside");
    let _ = fs::remove_dir_all(&outside);
    fs::create_dir_all(outside.join("in")).unwrap();
    fs::write(outside.join("in/file"), "content").unwrap();
    fs::rename(&outside, watched.at("new")).unwrap();
    assert_eq!(watched.events(), ["c new", "c new/in", "c new/in/file"]);
    fs::write(watched.at("old/file"), "new").unwrap();
    fs::write(watched.at("new/in/file"), "new").unwrap();
    let events = watched.events();
    assert!(
        events
            .iter()
            .all(|event| event == "m old/file" || event == "m new/in/file"),
        "{:?}",
        events
    );
}

/// A watch that reads only when the test says so: everything before happened before the first read.
struct Stepped {
    folder: PathBuf,
    watcher: Watcher,
    /// Paths that the reported events leave, as a client that knows nothing else sees them.
    replayed: BTreeSet<String>,
    /// All events since the last comparison, for messages.
    log: Vec<String>,
}

impl Stepped {
    fn new(name: &str, debounce_ms: u64) -> Stepped {
        let folder = env::temp_dir().join(format!("forkd-steps-{}-{}-{}", name, debounce_ms, process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tree")).unwrap();
        fs::create_dir(folder.join("outside")).unwrap();
        let (input, _) = sys::pipe().unwrap();
        let how = How {
            debounce_ms,
            recursive: true,
            flushes: false,
        };
        let mut watcher = Watcher::new(&folder.join("tree"), &how, input.into()).unwrap();
        watcher.shown.clear();
        assert!(watcher.begin().is_ok());
        Stepped {
            folder,
            watcher,
            replayed: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.join("tree").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.folder.join("outside").join(path)
    }

    fn make(&self, path: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    fn write(&self, path: &str) {
        fs::write(self.at(path), "content").unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    /// The events of all changes so far.
    fn events(&mut self) -> Vec<String> {
        assert!(self.watcher.read().is_ok());
        let records = self.watcher.finish().ok().unwrap();
        let mut reader = Reader::new(&records.0);
        let mut events = Vec::new();
        while let Ok(kind) = reader.u8() {
            reader.u8().unwrap();
            let mut path = || {
                String::from_utf8(reader.bytes().unwrap().to_vec())
                    .unwrap()
                    .trim_start_matches('/')
                    .to_string()
            };
            let to = path();
            events.push(match kind {
                b'v' => format!("v {} {}", path(), to),
                _ => {
                    reader.bytes().unwrap();
                    format!("{} {}", kind as char, to)
                }
            });
        }
        self.log.extend(events.iter().cloned());
        for event in &events {
            self.replay(event);
        }
        events
    }

    fn replay(&mut self, event: &str) {
        let words: Vec<&str> = event.split(' ').collect();
        let inside = |path: &str, folder: &str| below(path.as_bytes(), folder.as_bytes()).is_some();
        match words[0] {
            "c" => {
                self.replayed.insert(words[1].to_string());
            }
            "d" => self.replayed.retain(|path| !inside(path, words[1])),
            "v" => {
                let moved: Vec<String> = self
                    .replayed
                    .iter()
                    .filter(|path| inside(path, words[1]))
                    .cloned()
                    .collect();
                self.replayed
                    .retain(|path| !inside(path, words[1]) && !inside(path, words[2]));
                self.replayed.insert(words[2].to_string());
                let moved = moved.iter().map(|path| path.replacen(words[1], words[2], 1));
                self.replayed.extend(moved);
            }
            _ => {}
        }
    }

    /// The paths that are in the tree now: folders, files.
    fn present(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut folders, mut files) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting = vec![String::new()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(self.at(&folder)).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                let path = format!("{}{}{}", folder, if folder.is_empty() { "" } else { "/" }, name);
                if entry.file_type().unwrap().is_dir() {
                    folders.insert(path.clone());
                    waiting.push(path);
                } else {
                    files.insert(path);
                }
            }
        }
        (folders, files)
    }

    /// The events so far give the present tree, and each later change anywhere in it is reported.
    fn assert_nothing_is_lost(&mut self, what: &str) -> Vec<String> {
        let events = self.events();
        let (folders, files) = self.present();
        let all: BTreeSet<String> = folders.union(&files).cloned().collect();
        assert_eq!(self.replayed, all, "{}: {:?}", what, self.log);
        self.log.clear();
        for file in &files {
            self.write(file);
        }
        for folder in &folders {
            fs::write(self.at(&format!("{}/later", folder)), "").unwrap();
        }
        let later = self.events();
        for file in &files {
            assert!(
                later.contains(&format!("m {}", file)),
                "{}: {} in {:?}",
                what,
                file,
                later
            );
        }
        for folder in &folders {
            let times = later
                .iter()
                .filter(|event| **event == format!("c {}/later", folder))
                .count();
            assert!(
                times == 1 || files.contains(&format!("{}/later", folder)),
                "{}: {} in {:?}",
                what,
                folder,
                later
            );
        }
        events
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_content_of_a_moved_folder_is_reported_once_and_parents_first() {
    for debounce_ms in [0, 50] {
        let mut stepped = Stepped::new("in", debounce_ms);
        fs::create_dir_all(stepped.outside("new/in")).unwrap();
        fs::write(stepped.outside("new/in/f"), "").unwrap();
        fs::rename(stepped.outside("new"), stepped.at("new")).unwrap();
        // before the folder is found: part of what is found
        stepped.write("new/in/g");
        let mut events = stepped.assert_nothing_is_lost("moved in");
        assert_eq!(events[..2], ["c new", "c new/in"]);
        events.sort();
        assert_eq!(events, ["c new", "c new/in", "c new/in/f", "c new/in/g"]);
        // after the folder was found: each change by itself
        stepped.write("new/in/h");
        assert_eq!(stepped.events(), ["c new/in/h", "m new/in/h"]);
    }
}

#[test]
fn a_name_that_is_used_again_hides_no_folder() {
    for debounce_ms in [0, 50] {
        let mut stepped = Stepped::new("again", debounce_ms);
        for round in 0..3 {
            stepped.make("a/in");
            stepped.write(&format!("a/in/{}", round));
            stepped.rename("a", &format!("c{}", round));
        }
        stepped.make("a/in");
        stepped.write("a/in/last");
        stepped.assert_nothing_is_lost("made and moved");
        // the new folder is replaced by one that is known
        stepped.make("b");
        stepped.rename("b", "d");
        stepped.rename("c0", "b");
        stepped.assert_nothing_is_lost("replaced by a known one");
        fs::remove_dir_all(stepped.at("b")).unwrap();
        stepped.make("b");
        stepped.rename("b", "e");
        stepped.assert_nothing_is_lost("removed and made again");
    }
}

#[test]
fn a_folder_that_is_moved_between_its_parents_watch_and_its_parents_reading_is_watched() {
    let mut stepped = Stepped::new("between", 0);
    stepped.make("a/before/in");
    stepped.write("a/before/in/f");
    let place = stepped.at("a");
    assert!(matches!(stepped.watcher.watch_below(&place, b"a"), Ok(Some((_, true)))));
    stepped.rename("a/before", "a/after");
    stepped.assert_nothing_is_lost("moved between");
}

#[test]
fn a_folder_that_leaves_and_comes_back_under_another_name_is_watched_there() {
    for debounce_ms in [0, 50] {
        let mut stepped = Stepped::new("back", debounce_ms);
        stepped.make("a/in");
        stepped.write("a/in/f");
        stepped.assert_nothing_is_lost("made");
        fs::rename(stepped.at("a"), stepped.outside("a")).unwrap();
        fs::rename(stepped.outside("a"), stepped.at("b")).unwrap();
        stepped.assert_nothing_is_lost("moved out and in");
    }
}

#[test]
fn a_folder_that_is_moved_into_one_that_is_not_watched_yet_is_watched_there() {
    for debounce_ms in [0, 50] {
        let mut stepped = Stepped::new("early", debounce_ms);
        stepped.make("a/x/in");
        stepped.write("a/x/in/f");
        stepped.assert_nothing_is_lost("made");
        // the guest kernel reports only the first half of this move
        stepped.make("b");
        stepped.rename("a/x", "b/x");
        stepped.assert_nothing_is_lost("moved into a new folder");
    }
}

#[test]
fn lost_events_are_reported_and_folders_are_watched_again() {
    let mut stepped = Stepped::new("lost", 0);
    stepped.make("a");
    stepped.make("b");
    stepped.assert_nothing_is_lost("made");
    stepped.rename("a", "c");
    stepped.rename("b", "a");
    stepped.make("new/in");
    // the guest kernel's queue as it is after an overflow
    stepped.watcher.drain().unwrap();
    stepped.watcher.queue.clear();
    stepped.watcher.queue.push_back(Change {
        watch: -1,
        mask: libc::IN_Q_OVERFLOW,
        cookie: 0,
        name: Vec::new(),
    });
    assert_eq!(stepped.events(), ["o "]);
    for folder in ["a", "c", "new/in"] {
        let path = format!("{}/f", folder);
        stepped.write(&path);
        assert_eq!(stepped.events(), [format!("c {}", path), format!("m {}", path)]);
    }
}

#[test]
fn nothing_is_lost_while_folders_are_made_and_moved_beside_the_reading() {
    for debounce_ms in [0, 50] {
        let mut stepped = Stepped::new("beside", debounce_ms);
        for round in 0..30u32 {
            let (tree, outside) = (stepped.folder.join("tree"), stepped.folder.join("outside"));
            let writer = thread::spawn(move || {
                let mut state = round * 2 + 1;
                let mut next = |below: u32| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 16) % below
                };
                for step in 0..60 {
                    let path = |top: u32, sub: u32| tree.join(format!("d{}/e{}", top, sub));
                    let away = outside.join(format!("{}-{}", round, step));
                    let (top, sub, other) = (next(3), next(3), next(3));
                    // a step whose folder is not there, or whose target is not empty, changes nothing
                    let _ = match next(7) {
                        0 | 1 => fs::create_dir_all(path(top, sub)),
                        2 => fs::write(path(top, sub).join(format!("f{}", step)), "content"),
                        3 => fs::rename(path(top, sub), path(other, sub)),
                        4 => fs::rename(tree.join(format!("d{}", top)), tree.join(format!("d{}", other))),
                        5 => fs::rename(path(top, sub), path(top, other)),
                        _ => fs::rename(path(top, sub), &away).and_then(|_| fs::rename(&away, path(other, other))),
                    };
                }
            });
            while !writer.is_finished() {
                stepped.events();
            }
            writer.join().unwrap();
            stepped.assert_nothing_is_lost(&format!("round {} with {} ms", round, debounce_ms));
        }
    }
}
