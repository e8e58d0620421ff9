// Sums over the tokens of a sequence, of the tokens and of their directions: sum x and sum x/|x|, in double. Tokens whose
// |x| is NaN do not count; a token that is zero has no direction.
//
// A block takes 32 * VEC columns of a chunk of a sequence's tokens. Its warps take every eighth token each and are added
// in their order; the chunks are rows of `parts`, [sequences, chunks, 2, d], for whoever adds them in theirs.

template <class T, int VEC, int TEAM>
__device__ __forceinline__ void sequence_sums(const T* x, const double* norms, double* parts, long long length, int d,
                                              int tiles, long long chunk, long long chunks, Rows x_rows) {
  constexpr int WARPS = TEAM / 32;
  __shared__ double scratch[2][WARPS][32 * VEC];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = ((int)(blockIdx.x % tiles) * 32 + lane) * VEC;
  const long long share = blockIdx.x / tiles, sequence = share / chunks, first = share % chunks * chunk;
  const long long last = first + chunk < length ? first + chunk : length;
  double total[VEC] = {}, direction[VEC] = {};
  if (column < d)
    for (long long token = first + warp; token < last; token += WARPS) {
      const long long row = sequence * length + token;
      const double norm = __ldg(norms + row);
      if (norm != norm) continue;
      const double inverse = norm > 0.0 ? 1.0 / norm : 0.0;
      float value[VEC];
      read<T, VEC>(x + x_rows.at(row) + column, value);
#pragma unroll
      for (int i = 0; i < VEC; i++) total[i] += (double)value[i], direction[i] += (double)value[i] * inverse;
    }
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    scratch[0][warp][i * 32 + lane] = total[i];
    scratch[1][warp][i * 32 + lane] = direction[i];
  }
  __syncthreads();
  double* to = parts + share * 2 * d;
  // Threads take neighbouring columns, so that what they write is coalesced.
  for (int at = threadIdx.x; at < 2 * 32 * VEC; at += TEAM) {
    const int which = at / (32 * VEC), within = at % (32 * VEC), place = within % VEC * 32 + within / VEC;
    const int of = (int)(blockIdx.x % tiles) * 32 * VEC + within;
    if (of >= d) continue;
    double sum = scratch[which][0][place];
#pragma unroll
    for (int other = 1; other < WARPS; other++) sum += scratch[which][other][place];
    to[which * d + of] = sum;
  }
}
