"""warpfeed for imread-benchmark's protocols `decode-memory` and `loader-supply`."""

import warpfeed
from imread_benchmark.decoders import BaseDecoder


class WarpfeedDecoder(BaseDecoder):
    """`warpfeed.decode`: Pillow's pixels; damaged and truncated files are errors."""

    name = "warpfeed"
    package_name = "warpfeed"

    def decode(self, data):
        return warpfeed.decode(data)

    def decode_path(self, path):
        return warpfeed.decode(path)
