"""File access, and the small functions that hooks import."""

from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline.dialects import mmengine
from hookline.dialects.mmengine import config, fileio, utils
from hookline.dialects.mmengine.utils import dl_utils
from hookline.errors import ConfigError, StorageError

# -- files


def test_files_are_written_with_their_folders_and_read(tmp_path: Path) -> None:
    path = fileio.join_path(str(tmp_path), "a", "b.txt")
    fileio.put_text("grün\nrot\n", path)
    assert (fileio.get(path), fileio.get_text(path)) == ("grün\nrot\n".encode(), "grün\nrot\n")
    assert fileio.list_from_file(path) == ["grün", "rot"]
    assert fileio.list_from_file(path, prefix="x/", offset=1, max_num=5) == ["x/rot"]
    assert (fileio.exists(path), fileio.isfile(path), fileio.isdir(path)) == (True, True, False)
    fileio.put(b"1", tmp_path / "a" / "c" / "d.bin")
    fileio.put(b"1", tmp_path / "a" / ".hidden")
    assert list(fileio.list_dir_or_file(tmp_path / "a")) == ["b.txt", "c"]
    assert list(fileio.list_dir_or_file(tmp_path, recursive=True)) == ["a", "a/b.txt", "a/c", "a/c/d.bin"]
    assert list(fileio.list_dir_or_file(tmp_path, list_dir=False, suffix=".bin", recursive=True)) == ["a/c/d.bin"]
    with fileio.get_local_path(path) as local:
        assert local == path
    assert fileio.copyfile(path, tmp_path / "copy.txt") == str(tmp_path / "copy.txt")
    fileio.copytree(tmp_path / "a", tmp_path / "e")
    assert fileio.copy_if_symlink_fails(tmp_path / "a", tmp_path / "link") is True
    fileio.remove(tmp_path / "copy.txt")
    fileio.rmtree(tmp_path / "e")
    assert sorted(os.listdir(tmp_path)) == ["a", "link"]
    with pytest.raises(ValueError, match=r"^a suffix applies to files only"):
        fileio.list_dir_or_file(tmp_path, suffix=".bin")


@pytest.mark.parametrize("ending", ["json", "yaml", "yml", "pkl", "pickle"])
def test_data_is_written_and_read_by_the_ending_of_the_file(tmp_path: Path, ending: str) -> None:
    data = {"b": [1, 2.5, None, True], "a": {"text": "grün"}}
    fileio.dump(data, tmp_path / "sub" / f"x.{ending}")
    assert fileio.load(tmp_path / "sub" / f"x.{ending}") == data
    shown = fileio.dump(data, file_format=ending)
    opened: Any = io.BytesIO(shown) if isinstance(shown, bytes) else io.StringIO(shown)
    assert fileio.load(opened, file_format=ending) == data
    into: Any = io.BytesIO() if isinstance(shown, bytes) else io.StringIO()
    fileio.dump(data, into, file_format=ending)
    assert into.getvalue() == shown


def test_numpy_and_sets_are_written_as_plain_data() -> None:
    data = {"array": np.arange(2), "number": np.float32(0.5), "set": {1}, "range": range(2)}
    assert fileio.dump(data, file_format="json") == '{"array": [0, 1], "number": 0.5, "set": [1], "range": [0, 1]}'
    assert fileio.load(io.StringIO(fileio.dump(data, file_format="yaml")), file_format="yaml")["array"] == [0, 1]
    with pytest.raises(TypeError, match=r"^a object cannot be written as JSON$"):
        fileio.dump(object(), file_format="json")


def test_a_pickle_of_plain_data_is_read_and_any_other_is_not_run(tmp_path: Path) -> None:
    plain = {"a": np.arange(3.0), "b": OrderedDict(x=np.float64(2)), "c": {1, 2}, "d": b"x", "e": np.array(["t"])}
    for protocol in (2, 4, 5):
        fileio.dump(plain, tmp_path / "plain.pkl", protocol=protocol)
        found = fileio.load(tmp_path / "plain.pkl")
        assert found["a"].tolist() == [0, 1, 2]
        assert (found["b"]["x"], found["c"], found["d"], found["e"].tolist()) == (2, {1, 2}, b"x", ["t"])

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(
        StorageError, match=r"^the pickle holds a (posix|nt).mkdir, but only plain data, numpy arrays and tensors are"
    ):
        fileio.load(tmp_path / "evil.pkl")
    assert not (tmp_path / "ran").exists()


def test_handlers_and_backends_of_a_project(tmp_path: Path) -> None:
    @fileio.register_handler(["upper"])
    class Upper(fileio.BaseFileHandler):
        def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
            return file.read().upper()

        def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
            file.write(obj)

        def dump_to_str(self, obj: Any, **kwargs: Any) -> Any:
            return str(obj)

    fileio.dump("abc", tmp_path / "x.upper")
    assert fileio.load(tmp_path / "x.upper") == "ABC"

    @fileio.register_backend("shelf", prefixes="shelf")
    class Shelf(fileio.BaseStorageBackend):
        def get(self, filepath: str) -> bytes:
            return filepath.encode()

    assert fileio.get("shelf://book") == b"shelf://book"
    assert fileio.get("book", backend_args={"backend": "shelf"}) == b"book"
    assert fileio.get_file_backend("shelf://x").name == "Shelf"
    with pytest.raises(ValueError, match=r"^the backend name 'shelf' is already taken; replace it with force=True$"):
        fileio.register_backend("shelf", Shelf)
    with pytest.raises(ValueError, match=r"^unknown prefix 's3': only local files are supported; for others, register"):
        fileio.get("s3://bucket/x")
    with pytest.raises(ValueError, match=r"^unknown file ending '.xyz'; available: json, yaml"):
        fileio.load("x.xyz")
    with pytest.raises(TypeError, match=r"^load takes a path, or an open file with file_format='json', not 3$"):
        fileio.load(3)


def test_the_older_client_reads_files_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    for client in (fileio.FileClient("disk"), fileio.FileClient.infer_client(uri=str(tmp_path)), fileio.FileClient()):
        assert client.get(tmp_path / "x") == b"1"
        assert client.join_path("a", "b") == "a/b"


def test_a_dict_is_read_from_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1 cat\n2 brown dog\n")
    assert fileio.dict_from_file(tmp_path / "x", key_type=int) == {1: "cat", 2: ["brown", "dog"]}


# -- small functions


def test_types_are_checked() -> None:
    assert utils.is_str("a")
    assert utils.is_list_of([1, 2], int)
    assert not utils.is_list_of((1, 2), int)
    assert utils.is_tuple_of((1, 2), int)
    assert utils.is_seq_of("ab", str)
    assert not utils.is_seq_of([1, "a"], int)
    assert utils.is_filepath(Path("x"))
    assert utils.is_abs("/x")
    assert not utils.is_abs("x")
    assert utils.has_method("", "join")
    assert not utils.has_method("", "jion")


def test_tuples_and_lists() -> None:
    assert (utils.to_2tuple(3), utils.to_2tuple((1, 2, 3)), utils.to_ntuple(5)("ab")) == ((3, 3), (1, 2, 3), "ab")
    assert utils.list_cast(["1", "2"], int) == [1, 2]
    assert utils.tuple_cast(["1"], float) == (1.0,)
    assert utils.slice_list([1, 2, 3, 4], [1, 3]) == [[1], [2, 3, 4]]
    assert utils.slice_list([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]
    assert utils.concat_list([[1], [2, 3]]) == [1, 2, 3]
    with pytest.raises(ValueError, match=r"^the parts must have 2 items in total, as the list has, not 5$"):
        utils.slice_list([1, 2], [5])
    Pair = namedtuple("Pair", "a b")
    doubled = utils.apply_to({"x": [1, (2, "t")], "p": Pair(3, 4)}, lambda x: isinstance(x, int), lambda x: 2 * x)
    assert doubled == {"x": [2, (4, "t")], "p": Pair(6, 8)}


def test_modules_and_objects_by_name() -> None:
    assert utils.import_modules_from_strings("os.path") is os.path
    assert utils.import_modules_from_strings(["json", "no_such"], allow_failed_imports=True)[1] is None
    assert utils.import_modules_from_strings([]) is None
    assert utils.get_object_from_string("torch.nn.Linear") is nn.Linear
    assert utils.get_object_from_string("no_such.thing") is None
    with pytest.raises(ImportError, match=r"^the module 'no_such' cannot be imported"):
        utils.import_modules_from_strings("no_such")
    with pytest.raises(TypeError):
        utils.import_modules_from_strings([3])  # type: ignore[list-item]


def test_methods_that_are_overridden() -> None:
    class Base:
        def method(self) -> None: ...

    class Other(Base):
        def method(self) -> None: ...

    assert utils.is_method_overridden("method", Base, Other)
    assert not utils.is_method_overridden("method", Base, Base())


def test_functions_refuse_what_is_missing_and_take_old_names(caplog: pytest.LogCaptureFixture) -> None:
    @utils.requires_package("no_such_package")
    def needs() -> None: ...

    @utils.deprecated_api_warning({"old": "new"})
    def renamed(new: int) -> int:
        return new

    with pytest.raises(ConfigError, match=r"^no_such_package is required by needs, but is not installed$"):
        needs()
    assert utils.requires_executable("python3")(len)([1]) == 1
    assert renamed(old=3) == 3  # type: ignore[call-arg]
    assert caplog.messages == ["renamed: 'old' is the old name of 'new'; use the new one"]
    with pytest.raises(ValueError, match=r"pass only one of them$"):
        renamed(old=3, new=4)  # type: ignore[call-arg]


def test_paths(tmp_path: Path) -> None:
    utils.mkdir_or_exist(tmp_path / "a" / "b")
    utils.mkdir_or_exist(tmp_path / "a" / "b")
    utils.mkdir_or_exist("")
    for name in ("x.PNG", "a/y.png", "a/.z.png", "a/b/w.txt"):
        (tmp_path / name).write_text("")
    assert list(utils.scandir(tmp_path, recursive=True)) == ["a/b/w.txt", "a/y.png", "x.PNG"]
    assert list(utils.scandir(tmp_path, ".png", recursive=True)) == ["a/y.png"]
    assert list(utils.scandir(str(tmp_path), (".png",), case_sensitive=False)) == ["x.PNG"]
    utils.check_file_exist(tmp_path / "x.PNG")
    with pytest.raises(FileNotFoundError):
        utils.check_file_exist(tmp_path / "none")
    for _ in range(2):
        utils.symlink(tmp_path / "x.PNG", tmp_path / "link")
    with utils.fopen(tmp_path / "link") as file:
        assert file.read() == ""


def test_timers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr("hookline.dialects.mmengine.utils.timer.perf_counter", lambda: now[0])
    with utils.Timer(print_tmpl="took {:.1f}") as timer:
        now[0] = 2.0
        assert (timer.since_start(), timer.is_running) == (2.0, True)
        now[0] = 3.5
    assert capsys.readouterr().out == "took 1.5\n"
    with pytest.raises(utils.TimerError, match=r"^the timer is not running; call start\(\) first$"):
        timer.since_start()
    assert utils.check_time("x") == 0
    now[0] = 4.0
    assert utils.check_time("x") == 0.5


def test_progress_returns_the_results() -> None:
    assert utils.track_progress(lambda x, more: x + more, [1, 2], more=1) == [2, 3]
    assert list(utils.track_iter_progress((iter([1, 2]), 2))) == [1, 2]
    assert utils.track_progress_rich(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert utils.track_parallel_progress(abs, [-1, 2], nproc=2) == [1, 2]
    with utils.ProgressBar(2) as bar:
        bar.update()
        bar.update()
        assert bar.completed == 2


def test_versions_compare() -> None:
    versions = ["1.9", "1.10.0a1", "1.10.0b2", "1.10rc1", "1.10", "1.10.0.1", "2.13.0+cpu"]
    numbers = [utils.digit_version(version) for version in versions]
    assert numbers == sorted(numbers)
    assert utils.digit_version("1.10") == utils.digit_version("v1.10.0") == (1, 10, 0, 0, 0, 0)
    with pytest.raises(ValueError, match=r"^'x' is not a version$"):
        utils.digit_version("x")


def test_installed_packages_are_found_and_nothing_is_installed() -> None:
    assert utils.is_installed("torch")
    assert not utils.is_installed("no_such_package")
    assert Path(utils.get_installed_path("torch")) == Path(torch.__file__).parent
    with pytest.raises(ConfigError, match=r"^the package 'no_such_package' is not installed$"):
        utils.get_installed_path("no_such_package")
    with pytest.raises(ConfigError, match=r"pip install x$"):
        utils.install_package("x")


def test_objects_are_found_by_name() -> None:
    class Thing(utils.ManagerMixin):
        pass

    first = Thing.get_instance("first")
    assert Thing.get_instance("first") is first
    assert Thing.get_current_instance() is first
    assert Thing.check_instance_created("first")


@pytest.mark.processes  # `platform.platform()` starts one
def test_helpers_for_torch() -> None:
    assert torch.__version__ == dl_utils.TORCH_VERSION
    assert dl_utils.has_batch_norm(nn.Sequential(nn.BatchNorm1d(2)))
    assert dl_utils.is_norm(nn.LayerNorm(2))
    assert not dl_utils.is_norm(nn.LayerNorm(2), exclude=nn.LayerNorm)
    assert [grid.shape for grid in dl_utils.torch_meshgrid(torch.ones(2), torch.ones(3))] == [(2, 3), (2, 3)]
    assert dl_utils.is_jit_tracing() is False
    images = dl_utils.tensor2imgs(torch.tensor([[[[0.0]], [[1.0]], [[2.0]]]]), mean=(1, 1, 1), std=(2, 2, 2))
    assert images[0].tolist() == [[[5, 3, 1]]]
    assert {"Python", "PyTorch", "hookline"} < set(dl_utils.collect_env())


def test_the_package_itself_exports_the_names_of_five_packages() -> None:
    assert mmengine.Config is config.Config
    assert mmengine.is_list_of is utils.is_list_of
    assert mmengine.load is fileio.load
    assert mmengine.fileio is fileio
    assert mmengine.device.get_device() in ("cpu", "cuda", "mps", "xpu")
    with pytest.raises(AttributeError, match=r"has no attribute 'Confgi'$"):
        _ = mmengine.Confgi
