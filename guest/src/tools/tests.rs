//! The tools on real folders.

use super::*;
use crate::scratch::Folder;
use forkd_wire::{Malformed, Writer};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::PathBuf;

fn succeeds(outcome: Outcome) {
    if let Err(problem) = outcome {
        panic!("{}: {}", problem.code, problem.message);
    }
}

fn fails(outcome: Outcome) -> String {
    match outcome {
        Ok(()) => panic!("it succeeded"),
        Err(problem) => problem.code,
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Names that are hard to handle.
fn odd_names() -> Vec<OsString> {
    let long = "n".repeat(255);
    let names: [&[u8]; 8] = [
        b"two words",
        b"line\nend",
        b"not \xff\xfe utf-8",
        b"-rf",
        b"tab\there",
        "ünï".as_bytes(),
        b"a\\b",
        long.as_bytes(),
    ];
    names.iter().map(|name| OsString::from_vec(name.to_vec())).collect()
}

/// Paths of a list, and whether there is more.
fn listed(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, bool), Malformed> {
    let mut reader = Reader::new(bytes);
    let mut paths = Vec::new();
    loop {
        match reader.u8()? {
            b'+' => {
                paths.push(reader.bytes()?.to_vec());
                let _ = (reader.u8()?, reader.u32()?, reader.u32()?, reader.u32()?);
                let _ = (
                    reader.u64()?,
                    reader.i64()?,
                    reader.str()?,
                    reader.str()?,
                    reader.bytes()?,
                );
            }
            b'!' => drop(reader.str()?),
            b'.' => return Ok((paths, reader.u8()? == 1)),
            _ => return Err(Malformed),
        }
    }
}

fn list_of(folder: &Folder, tree: &str, depth: u64, limit: u64, after: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let output = folder.output();
    succeeds(list::list(&folder.path(tree), depth, limit, Some(after), output));
    listed(&folder.written()).unwrap()
}

fn list_page(folder: &Folder, depth: u64, limit: u64, after: &[u8]) -> (Vec<Vec<u8>>, bool) {
    list_of(folder, "tree", depth, limit, after)
}

/// All visible properties of a tree.
fn seen(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let path = root.join(&below);
        let found = fs::symlink_metadata(&path).unwrap();
        let what = if found.file_type().is_symlink() {
            format!("-> {:?}", fs::read_link(&path).unwrap())
        } else if found.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|e| below.join(e.unwrap().file_name())));
            "folder".to_string()
        } else if found.is_file() {
            format!(
                "{} bytes {:?}",
                found.len(),
                fs::read(&path).unwrap().iter().map(|b| *b as u64).sum::<u64>()
            )
        } else {
            "special".to_string()
        };
        all.insert(
            below,
            format!("{:o} {} {} {}", found.mode(), found.uid(), found.mtime(), what),
        );
    }
    all
}

/// A tree with every kind of entry.
fn make_tree(root: &Path) {
    for (i, name) in odd_names().iter().enumerate() {
        put(&root.join(name), &"x".repeat(i * 1000));
        put(&root.join("deep").join(name).join("file"), "deep");
    }
    put(&root.join("script"), "#!/bin/sh\n");
    fs::set_permissions(root.join("script"), Permissions::from_mode(0o751)).unwrap();
    symlink("script", root.join("link")).unwrap();
    symlink("/nowhere/".repeat(30), root.join("long link")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    fs::hard_link(root.join("script"), root.join("second name")).unwrap();
    sys::make_node(&root.join("pipe"), libc::S_IFIFO | 0o640, 0).unwrap();
    let mut sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    sparse.seek(SeekFrom::Start(5 << 20)).unwrap();
    sparse.write_all(b"in the middle").unwrap();
    File::create(root.join("empty")).unwrap();
    fs::create_dir(root.join("closed")).unwrap();
    put(&root.join("closed/inside"), "x");
    fs::set_permissions(root.join("closed"), Permissions::from_mode(0o555)).unwrap();
    sys::set_mtime(&root.join("script"), 1_000_000_000, 0).unwrap();
}

#[test]
fn lists_in_order_and_to_a_depth() {
    let folder = Folder::new("list");
    for path in ["b/2", "b/1", "a", "b/1x/y/z", "c"] {
        put(&folder.path("tree").join(path).join("f"), "");
    }
    let names = |depth| -> Vec<String> {
        let (paths, more) = list_page(&folder, depth, 1000, b"");
        assert!(!more);
        paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    };
    assert_eq!(names(1), ["a", "b", "c"]);
    assert_eq!(names(2), ["a", "a/f", "b", "b/1", "b/1x", "b/2", "c", "c/f"]);
    assert_eq!(names(100).len(), 13);
}

#[test]
fn pages_of_any_size_give_the_same_list() {
    let folder = Folder::new("pages");
    make_tree(&folder.path("tree"));
    let (whole, _) = list_page(&folder, 100, 1000, b"");
    for limit in [1, 2, 3, 7, whole.len() as u64] {
        let (mut all, mut more) = list_page(&folder, 100, limit, b"");
        while more {
            let (next, still) = list_page(&folder, 100, limit, all.last().unwrap());
            assert!(!next.is_empty());
            all.extend(next);
            more = still;
        }
        assert_eq!(all, whole, "limit {}", limit);
    }
}

#[test]
fn only_folders_are_listed() {
    let folder = Folder::new("list-file");
    put(&folder.path("file"), "");
    let output = folder.output();
    assert_eq!(fails(list::list(&folder.path("file"), 1, 1, None, output)), "ENOTDIR");
    let output = folder.output();
    assert_eq!(fails(list::list(&folder.path("none"), 1, 1, None, output)), "ENOENT");
}

#[test]
fn a_tree_deeper_than_any_path_is_copied_packed_listed_and_removed() {
    let folder = Folder::new("deep");
    let name = "d".repeat(200);
    fs::create_dir(folder.path("tree")).unwrap();
    std::env::set_current_dir(folder.path("tree")).unwrap();
    for _ in 0..60 {
        fs::create_dir(&name).unwrap();
        std::env::set_current_dir(&name).unwrap();
    }
    fs::write("bottom", "here").unwrap();
    std::env::set_current_dir("/").unwrap();
    succeeds(copy::copy(&folder.path("tree"), &folder.path("copy"), true, false));
    let output = folder.output();
    succeeds(pack::pack(&folder.path("copy"), false, output));
    let archive = folder.path("archive");
    fs::write(&archive, folder.written()).unwrap();
    std::env::set_current_dir("/").unwrap();
    succeeds(unpack::unpack(
        &folder.path("third"),
        File::open(&archive).unwrap(),
        folder.output(),
    ));
    std::env::set_current_dir("/").unwrap();
    for tree in ["tree", "copy", "third"] {
        assert_eq!(list_of(&folder, tree, 1000, 1000, b"").0.len(), 61, "{}", tree);
        succeeds(remove::remove(&folder.path(tree)));
        assert!(!folder.path(tree).exists());
    }
}

#[test]
fn a_copy_is_equal_to_its_source() {
    let folder = Folder::new("copy");
    make_tree(&folder.path("tree"));
    succeeds(copy::copy(&folder.path("tree"), &folder.path("copy"), true, false));
    assert_eq!(seen(&folder.path("tree")), seen(&folder.path("copy")));
    let inode = |name: &str| fs::metadata(folder.path("copy").join(name)).unwrap().ino();
    assert_eq!(inode("script"), inode("second name"));
    let sparse = fs::metadata(folder.path("copy/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20);
}

#[test]
fn a_copy_overwrites_only_on_request_and_never_a_full_folder() {
    let folder = Folder::new("overwrite");
    put(&folder.path("a"), "a");
    put(&folder.path("b"), "b");
    put(&folder.path("full/x"), "x");
    let copy = |to: &str, overwrite| copy::copy(&folder.path("a"), &folder.path(to), false, overwrite);
    assert_eq!(fails(copy("b", false)), "EEXIST");
    assert_eq!(fs::read(folder.path("b")).unwrap(), b"b");
    succeeds(copy("b", true));
    assert_eq!(fs::read(folder.path("b")).unwrap(), b"a");
    assert_eq!(fails(copy("full", true)), "ENOTEMPTY");
    assert_eq!(fails(copy("none/b", true)), "ENOENT");
    assert_eq!(
        fails(copy::copy(&folder.path("full"), &folder.path("c"), false, false)),
        "EISDIR"
    );
    assert_eq!(
        fails(copy::copy(&folder.path("full"), &folder.path("full/y"), true, false)),
        "EINVAL"
    );
    assert_eq!(
        fs::read_dir(folder.path("full")).unwrap().count(),
        1,
        "an incomplete file is left"
    );
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 3);
}

#[test]
fn a_move_to_another_file_system_leaves_no_source() {
    let folder = Folder::new("move");
    make_tree(&folder.path("tree"));
    let before = seen(&folder.path("tree"));
    succeeds(copy::move_across(&folder.path("tree"), &folder.path("moved"), false));
    assert_eq!(seen(&folder.path("moved")), before);
    assert!(!folder.path("tree").exists());
}

#[test]
fn a_removal_does_not_follow_links() {
    let folder = Folder::new("remove");
    put(&folder.path("outside/kept"), "x");
    make_tree(&folder.path("tree"));
    symlink(folder.path("outside"), folder.path("tree/way out")).unwrap();
    succeeds(remove::remove(&folder.path("tree")));
    assert!(!folder.path("tree").exists() && folder.path("outside/kept").exists());
    symlink(folder.path("outside"), folder.path("link")).unwrap();
    succeeds(remove::remove(&folder.path("link")));
    assert!(folder.path("outside/kept").exists());
    assert_eq!(fails(remove::remove(Path::new("/.."))), "EBUSY");
    assert_eq!(fails(remove::remove(&folder.path("none"))), "ENOENT");
}

#[test]
fn modes_of_a_tree_change_and_links_are_not_followed() {
    let folder = Folder::new("change");
    put(&folder.path("outside"), "x");
    fs::set_permissions(folder.path("outside"), Permissions::from_mode(0o600)).unwrap();
    put(&folder.path("tree/a/b"), "x");
    symlink(folder.path("outside"), folder.path("tree/link")).unwrap();
    let mode = |path: &str| fs::metadata(folder.path(path)).unwrap().mode() & 0o7777;
    let closed = if sys::is_root() { 0o000 } else { 0o500 };
    for wanted in [0o700, closed, 0o755] {
        succeeds(change::chmod(&folder.path("tree"), wanted));
        assert_eq!([mode("tree"), mode("tree/a"), mode("tree/a/b")], [wanted; 3]);
    }
    assert_eq!(mode("outside"), 0o600);
    assert_eq!(
        fails(change::chown(&folder.path("tree"), "no such user", "")),
        "no_such_user"
    );
}

/// Packs a path and returns the archive.
fn packed(folder: &Folder, path: &str) -> Vec<u8> {
    let output = folder.output();
    succeeds(pack::pack(&folder.path(path), false, output));
    std::env::set_current_dir("/").unwrap();
    folder.written()
}

fn unpacked(folder: &Folder, archive: &[u8], to: &str) -> Outcome {
    let file = folder.path(".archive");
    fs::write(&file, archive).unwrap();
    let outcome = unpack::unpack(&folder.path(to), File::open(&file).unwrap(), folder.output());
    std::env::set_current_dir("/").unwrap();
    fs::remove_file(&file).unwrap();
    outcome
}

#[test]
fn packing_and_unpacking_changes_nothing() {
    let folder = Folder::new("pack");
    make_tree(&folder.path("tree"));
    let archive = packed(&folder, "tree");
    assert!(archive.len() < 1 << 20, "holes are left out");
    assert_eq!(archive.len() % 512, 0);
    succeeds(unpacked(&folder, &archive, "new/one"));
    assert_eq!(seen(&folder.path("tree")), seen(&folder.path("new/one")));
    let counts = folder.written();
    let mut counts = Reader::new(&counts);
    assert_eq!(counts.u64().unwrap(), seen(&folder.path("tree")).len() as u64);
    let inode = |name: &str| fs::metadata(folder.path("new/one").join(name)).unwrap().ino();
    assert_eq!(inode("script"), inode("second name"));
    assert!(fs::metadata(folder.path("new/one/sparse")).unwrap().blocks() * 512 < 1 << 20);
    // again over existing files; folders stay, and have changed
    succeeds(unpacked(&folder, &archive, "new/one"));
    let files = |tree: &str| -> BTreeMap<PathBuf, String> {
        let all = seen(&folder.path(tree)).into_iter();
        all.filter(|(_, what)| !what.ends_with("folder")).collect()
    };
    assert_eq!(files("tree"), files("new/one"));
}

#[test]
fn one_file_is_an_archive_of_one_entry() {
    let folder = Folder::new("pack-file");
    put(&folder.path("tree/name"), "content");
    let archive = packed(&folder, "tree/name");
    put(&folder.path("into/kept"), "kept");
    let mode = Permissions::from_mode(0o700);
    fs::set_permissions(folder.path("into"), mode).unwrap();
    succeeds(unpacked(&folder, &archive, "into"));
    assert_eq!(fs::read(folder.path("into/name")).unwrap(), b"content");
    assert_eq!(fs::read(folder.path("into/kept")).unwrap(), b"kept");
    assert_eq!(
        fs::metadata(folder.path("into")).unwrap().mode() & 0o777,
        0o700,
        "a folder that is there stays as it is"
    );
}

/// An archive of single entries: type, name, target, content.
fn archive_of(entries: &[(u8, &str, &str, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (kind, name, target, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content.as_bytes());
        archive.resize((archive.len() + 511) / 512 * 512, 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

#[test]
fn an_archive_cannot_write_outside_its_folder() {
    let folder = Folder::new("hostile");
    let outside = folder.path("outside");
    put(&outside.join("kept"), "kept");
    let there = outside.to_str().unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (archive_of(&[(b'0', "../outside/kept", "", "bad")]), "bad_archive"),
        (archive_of(&[(b'0', "a/../../outside/kept", "", "bad")]), "bad_archive"),
        (
            archive_of(&[(b'2', "way", there, ""), (b'0', "way/kept", "", "bad")]),
            "ENOTDIR",
        ),
        (
            archive_of(&[(b'2', "way", there, ""), (b'0', "way/new", "", "bad")]),
            "ENOTDIR",
        ),
        (
            archive_of(&[(b'2', "way", "..", ""), (b'1', "x", "way/outside/kept", "")]),
            "ENOTDIR",
        ),
        (
            archive_of(&[(b'1', "x", "../outside/kept", ""), (b'0', "x", "", "bad")]),
            "bad_archive",
        ),
        (
            archive_of(&[(b'2', "x", "../outside/kept", ""), (b'5', "x/", "", "")]),
            "EEXIST",
        ),
        (archive_of(&[(b'Z', "x", "", "")]), "bad_archive"),
        (archive_of(&[(b'0', "x", "", "short")])[..514].to_vec(), "bad_archive"),
        (b"no archive at all".to_vec(), "bad_archive"),
        (vec![7; 5000], "bad_archive"),
    ];
    for (archive, code) in cases {
        for to in ["new", "there"] {
            fs::create_dir_all(folder.path("there")).unwrap();
            assert_eq!(fails(unpacked(&folder, &archive, to)), code);
            assert!(!folder.path("new").exists(), "it appears only when it is complete");
            fs::remove_dir_all(folder.path("there")).unwrap();
        }
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        let names: Vec<_> = fs::read_dir(folder.path(""))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names.iter().filter(|name| *name != ".output").count(), 1, "{:?}", names);
    }
}

#[test]
fn an_absolute_name_is_relative_to_the_folder_and_a_link_is_replaced() {
    let folder = Folder::new("absolute");
    put(&folder.path("outside"), "kept");
    let target = folder.path("outside");
    let archive = archive_of(&[
        (b'0', "/etc/forkd-test", "", "inside"),
        (b'2', "link", target.to_str().unwrap(), ""),
        (b'0', "link", "", "a file now"),
    ]);
    succeeds(unpacked(&folder, &archive, "new"));
    assert_eq!(fs::read(folder.path("new/etc/forkd-test")).unwrap(), b"inside");
    assert_eq!(fs::read(folder.path("new/link")).unwrap(), b"a file now");
    assert_eq!(fs::read(folder.path("outside")).unwrap(), b"kept");
}

#[test]
fn archives_are_compatible_with_the_tar_program() {
    let folder = Folder::new("gnu");
    make_tree(&folder.path("tree"));
    fs::write(folder.path("archive"), packed(&folder, "tree")).unwrap();
    fs::create_dir(folder.path("out")).unwrap();
    let mut tar = std::process::Command::new("tar");
    let status = tar
        .arg("-xpf")
        .arg(folder.path("archive"))
        .arg("-C")
        .arg(folder.path("out"))
        .status();
    match status {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        status => assert!(status.unwrap().success()),
    }
    assert_eq!(seen(&folder.path("tree")), seen(&folder.path("out")));
    let mut tar = std::process::Command::new("tar");
    let tar = tar.args(["--format=posix", "-c", "-C"]).arg(folder.path("tree"));
    let output = tar.arg(".").output().unwrap();
    assert!(output.status.success());
    succeeds(unpacked(&folder, &output.stdout, "back"));
    assert_eq!(seen(&folder.path("tree")), seen(&folder.path("back")));
}

fn input_of(folder: &Folder, request: Writer) -> File {
    fs::write(folder.path(".input"), request.0).unwrap();
    File::open(folder.path(".input")).unwrap()
}

fn set_attributes(folder: &Folder, name: &str, pairs: &[(&str, &str)]) -> Outcome {
    let start = Writer::default().u32(pairs.len() as u32);
    let request = pairs
        .iter()
        .fold(start, |request, (key, value)| request.str(key).str(value));
    attributes::set(&folder.path(name), b"user.test.", input_of(folder, request))
}

fn attributes_of(folder: &Folder, names: &[&str]) -> Vec<BTreeMap<String, String>> {
    let start = Writer::default().u32(names.len() as u32);
    let request = names.iter().fold(start, |request, name| {
        request.bytes(folder.path(name).as_os_str().as_bytes())
    });
    let output = folder.output();
    succeeds(attributes::get(b"user.test.", input_of(folder, request), output));
    let written = folder.written();
    let mut reader = Reader::new(&written);
    let maps = names
        .iter()
        .map(|_| reader.map().unwrap().into_iter().collect())
        .collect();
    assert!(reader.rest().is_empty());
    maps
}

#[test]
fn attributes_replace_those_with_the_same_prefix_and_no_others() {
    let folder = Folder::new("attributes");
    put(&folder.path("file"), "");
    put(&folder.path("other"), "");
    symlink("file", folder.path("link")).unwrap();
    match sys::set_attribute(&folder.path("file"), b"user.mine", b"stays") {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            return eprintln!("skipped: this file system has no attributes of users");
        }
        result => result.unwrap(),
    }
    succeeds(set_attributes(&folder, "file", &[("a", "1"), ("b", "two words")]));
    succeeds(set_attributes(&folder, "link", &[("b", "2"), ("c", "")]));
    let wanted: BTreeMap<String, String> = [("b", "2"), ("c", "")].map(|(k, v)| (k.into(), v.into())).into();
    let found = attributes_of(&folder, &["file", "other", "link", "missing"]);
    assert_eq!(found, [wanted.clone(), BTreeMap::new(), wanted, BTreeMap::new()]);
    succeeds(set_attributes(&folder, "file", &[]));
    assert_eq!(attributes_of(&folder, &["file"]), [BTreeMap::new()]);
    assert_eq!(
        sys::attribute(&folder.path("file"), b"user.mine", 16).unwrap(),
        b"stays"
    );
}

#[test]
fn attributes_of_a_missing_file_and_malformed_ones_are_refused() {
    let folder = Folder::new("attributes-bad");
    put(&folder.path("file"), "");
    assert_eq!(fails(set_attributes(&folder, "missing", &[("a", "1")])), "ENOENT");
    let lie = input_of(&folder, Writer::default().u32(1000));
    assert_eq!(
        fails(attributes::set(&folder.path("file"), b"user.test.", lie)),
        "bad_request"
    );
    let lie = input_of(&folder, Writer::default().u32(1000));
    let output = folder.output();
    assert_eq!(fails(attributes::get(b"user.test.", lie, output)), "bad_request");
}
