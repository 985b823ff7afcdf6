# x264 with two encoder threads and a lookahead thread.
. "$SCENES/prelude.sh"
python3 -c '
import sys
for frame in range(20):
    sys.stdout.buffer.write(bytes((x * (frame + 1) + y * 3) % 256 for y in range(144) for x in range(176)))
    sys.stdout.buffer.write(bytes((x + frame) % 256 for x in range(176 * 144 // 2)))' >video.yuv
"${run[@]}" x264 --quiet --threads 2 --demuxer raw --input-res 176x144 --fps 25 -o out/video.264 video.yuv
sha256sum out/video.264
