"""Numbers and info of a run, by name, and log lines for people."""

from hookline.dialects.mmengine.logging.history_buffer import HistoryBuffer
from hookline.dialects.mmengine.logging.logger import MMLogger, print_log
from hookline.dialects.mmengine.logging.message_hub import MessageHub

__all__ = ["HistoryBuffer", "MMLogger", "MessageHub", "print_log"]
