"""Progress bars for long tasks."""

from hookline.dialects.mmengine.utils.progressbar import track_progress_rich

__all__ = ["track_progress_rich"]
