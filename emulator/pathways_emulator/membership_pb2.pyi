from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("registration", "heartbeat", "leave", "notice")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    registration: Registration
    heartbeat: Heartbeat
    leave: Leave
    notice: Notice
    def __init__(self, registration: _Optional[_Union[Registration, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("slice_index", "host_index", "hosts", "incarnation", "process_uuid", "address", "pid", "pid_space", "node")
    SLICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    HOST_INDEX_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PID_SPACE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    slice_index: int
    host_index: int
    hosts: int
    incarnation: int
    process_uuid: str
    address: str
    pid: int
    pid_space: str
    node: str
    def __init__(self, slice_index: _Optional[int] = ..., host_index: _Optional[int] = ..., hosts: _Optional[int] = ..., incarnation: _Optional[int] = ..., process_uuid: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., pid_space: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sent_ns",)
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    sent_ns: int
    def __init__(self, sent_ns: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("reason", "left_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    left_s: float
    def __init__(self, reason: _Optional[str] = ..., left_s: _Optional[float] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("welcome", "ack", "stop")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    stop: Stop
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("heartbeat_interval_s", "heartbeat_timeout_s")
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    def __init__(self, heartbeat_interval_s: _Optional[float] = ..., heartbeat_timeout_s: _Optional[float] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("sent_ns",)
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    sent_ns: int
    def __init__(self, sent_ns: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("kind", "reason")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Stop.Kind]
        REFUSED: _ClassVar[Stop.Kind]
        SUPERSEDED: _ClassVar[Stop.Kind]
        SLICE_ENDED: _ClassVar[Stop.Kind]
        SHUTDOWN: _ClassVar[Stop.Kind]
        RELEASED: _ClassVar[Stop.Kind]
    KIND_UNSPECIFIED: Stop.Kind
    REFUSED: Stop.Kind
    SUPERSEDED: Stop.Kind
    SLICE_ENDED: Stop.Kind
    SHUTDOWN: Stop.Kind
    RELEASED: Stop.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: Stop.Kind
    reason: str
    def __init__(self, kind: _Optional[_Union[Stop.Kind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("instance_type", "settled", "slices", "keepalive_s")
    INSTANCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_S_FIELD_NUMBER: _ClassVar[int]
    instance_type: str
    settled: bool
    slices: _containers.RepeatedCompositeFieldContainer[SliceMember]
    keepalive_s: float
    def __init__(self, instance_type: _Optional[str] = ..., settled: _Optional[bool] = ..., slices: _Optional[_Iterable[_Union[SliceMember, _Mapping]]] = ..., keepalive_s: _Optional[float] = ...) -> None: ...

class SliceMember(_message.Message):
    __slots__ = ("index", "incarnation", "alive", "reason", "notice", "abandoned")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    index: int
    incarnation: int
    alive: bool
    reason: str
    notice: Notice
    abandoned: str
    def __init__(self, index: _Optional[int] = ..., incarnation: _Optional[int] = ..., alive: _Optional[bool] = ..., reason: _Optional[str] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., abandoned: _Optional[str] = ...) -> None: ...

class AnnounceShutdownRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class AnnounceShutdownResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("slice_index", "incarnation", "reason")
    SLICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    slice_index: int
    incarnation: int
    reason: str
    def __init__(self, slice_index: _Optional[int] = ..., incarnation: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("snapshot", "hosts", "uptime_s", "shutting_down")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    hosts: _containers.RepeatedCompositeFieldContainer[HostStatus]
    uptime_s: float
    shutting_down: bool
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., hosts: _Optional[_Iterable[_Union[HostStatus, _Mapping]]] = ..., uptime_s: _Optional[float] = ..., shutting_down: _Optional[bool] = ...) -> None: ...

class HostStatus(_message.Message):
    __slots__ = ("slice_index", "host_index", "incarnation", "address", "pid", "silent_s", "pid_space", "node")
    SLICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    HOST_INDEX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    PID_SPACE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    slice_index: int
    host_index: int
    incarnation: int
    address: str
    pid: int
    silent_s: float
    pid_space: str
    node: str
    def __init__(self, slice_index: _Optional[int] = ..., host_index: _Optional[int] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., silent_s: _Optional[float] = ..., pid_space: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...
