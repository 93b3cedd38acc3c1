# A server for one ranker. The ranker is mounted, the key comes from the environment:
#   docker build -t backpack-rank .
#   docker run -p 8000:8000 -v $PWD/outputs/train/DATE/ranker:/ranker:ro -e BACKPACK_RANK_API_KEY=... backpack-rank
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE train.py evaluate.py ./
COPY conf conf
COPY lexicons lexicons
COPY backpack_rank backpack_rank
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' && useradd --create-home server
USER server
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=4); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
STOPSIGNAL SIGTERM
CMD ["backpack-rank", "serve", "/ranker", "--host", "0.0.0.0"]
