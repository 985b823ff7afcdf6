# ffmpeg: threads that encode and decode, filters, a container there and back.
. "$SCENES/prelude.sh"
quiet=(-hide_banner -loglevel error -nostdin -threads 2)
"${run[@]}" ffmpeg "${quiet[@]}" -f lavfi -i testsrc=duration=2:size=320x240:rate=15 \
    -f lavfi -i sine=duration=2 -c:v mpeg4 -c:a pcm_s16le -bitexact -f matroska out/video.mkv
"${run[@]}" ffmpeg "${quiet[@]}" -i out/video.mkv -vf scale=160:120,hflip -c:v libx264 -threads 2 \
    -bitexact -an -f h264 out/video.264
"${run[@]}" ffmpeg "${quiet[@]}" -i out/video.264 -f rawvideo - | sha256sum
